"""Search spaces: what values each hyper-parameter may have."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

Value = None | bool | int | float | str
Params = dict[str, Value]
"""Hyper-parameter → its value in one trial."""


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
Space = Mapping[str, Parameter]


def grid_size(space: Space) -> int:
    """Points of the grid; raises `ValueError` for a range that has no grid."""
    return prod(len(values_of(parameter)) for parameter in space.values())


def grid_point(space: Space, number: int) -> Params:
    """Point of this number, from 0 on; the last parameter changes first."""
    point: Params = {}
    for name in reversed(list(space)):
        values = values_of(space[name])
        number, place = divmod(number, len(values))
        point[name] = values[place]
    return {name: point[name] for name in space}


def values_of(parameter: Parameter) -> Sequence[Value]:
    """All values of the parameter, in order; raises `ValueError` for a range of floats without a step."""
    match parameter:
        case Choice(values):
            return values
        case Range(least, most, is_integer=True, step=step):
            return range(int(least), int(most) + 1, int(step or 1))
        case Range(least, most, step=float() | int() as step):
            return [least + place * step for place in range(int((most - least) / step + 1e-9) + 1)]
    raise ValueError("A range of numbers without a step has no grid.")
