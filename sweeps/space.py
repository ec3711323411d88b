"""Search spaces: what values each hyperparameter may have."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

Value = None | bool | int | float | str
Params = dict[str, Value]
"""Hyperparameter → its value in one trial."""


@dataclass(frozen=True)
class Choice:
    """One of the values; a constant is a choice of one."""

    values: tuple[Value, ...]


@dataclass(frozen=True)
class Range:
    """A number between two, both included; `log`: uniform in its logarithm; `step`: its multiples above the least."""

    least: float
    most: float
    is_integer: bool = False
    log: bool = False
    step: float | None = None


Parameter = Choice | Range
ROUNDING = 1e-9
"""Of steps, so that the greatest value is not lost by the last bits of floats."""
Space = Mapping[str, Parameter]


def grid_size(space: Space) -> int:
    """Points of the grid; raises `ValueError` for a range that has no grid."""
    return prod(map(count_of, space.values()))


def grid_point(space: Space, number: int) -> Params:
    """Point of this number, from 0 on; the last parameter changes first."""
    point: Params = {}
    for name in reversed(list(space)):
        number, place = divmod(number, count_of(space[name]))
        point[name] = value_at(space[name], place)
    return {name: point[name] for name in space}


def count_of(parameter: Parameter) -> int:
    """How many values the parameter has; raises `ValueError` for a range of floats without a step."""
    match parameter:
        case Choice(values):
            return len(values)
        case Range(least, most, is_integer=is_integer, step=step) if is_integer or step:
            return int((most - least) / (step or 1) + ROUNDING) + 1
    raise ValueError("A range of numbers without a step has no grid.")


def value_at(parameter: Parameter, place: int) -> Value:
    """The value at this place, from 0 on."""
    match parameter:
        case Choice(values):
            return values[place]
        case Range(least, _, is_integer=is_integer, step=step):
            value = least + place * (step or 1)
            return int(value) if is_integer else value
