"""Parameters of a policy, read from its signature.

A policy declares each one as a keyword argument: `power: Annotated[float, Range(-4, 4, "what it does")] = -0.5`, or,
where there are names to choose from, `first: Annotated[Literal["old", "new"], Choice("what it decides")] = "old"`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from inspect import Parameter as Argument
from inspect import signature
from typing import Any, get_args, get_type_hints

from allocation.decision import Decision

Policy = Callable[..., Decision]
"""A policy: takes a `Problem`, and its parameters by keyword."""


class InvalidParameter(ValueError):
    """Unknown parameter or invalid value; the message says which, and why."""

    def __init__(self, name: str, reason: str) -> None:
        self.name, self.reason = name, reason
        super().__init__(f"{name}: {reason}")


@dataclass(frozen=True)
class Range:
    """Range of a numeric parameter, both ends included, and its description."""

    least: float
    most: float
    meaning: str


@dataclass(frozen=True)
class Switch:
    """A boolean parameter and its description; simulated: available in simulations only."""

    meaning: str
    simulated: bool = False


@dataclass(frozen=True)
class Choice:
    """A parameter with named values, a `Literal`, and its description."""

    meaning: str


@dataclass(frozen=True)
class Parameter:
    """One parameter; `least` and `most` are 0 and 1 for booleans and named values.

    simulated: available in simulations only.
    """

    name: str
    kind: type[float] | type[int] | type[bool] | type[str]
    default: float | str
    least: float
    most: float
    meaning: str
    names: tuple[str, ...] = ()
    simulated: bool = False

    def read(self, given: object) -> float | str:
        """The value converted to the parameter's type, or `InvalidParameter`."""
        if self.kind is str:
            if isinstance(given, str) and given in self.names:
                return given
            raise InvalidParameter(self.name, f"must be one of {', '.join(self.names)}")
        if self.kind is bool:
            if isinstance(given, bool):
                return given
            raise InvalidParameter(self.name, "must be true or false")
        if isinstance(given, bool) or not isinstance(given, int | float) or given != given:  # noqa: PLR0124  # NaN
            raise InvalidParameter(self.name, "must be a number")
        if not self.least <= given <= self.most:
            raise InvalidParameter(self.name, f"must be from {self.least:g} to {self.most:g}")
        if self.kind is int and given != int(given):
            raise InvalidParameter(self.name, "must be a whole number")
        return self.kind(given)


def parameters_of(policy: Policy) -> dict[str, Parameter]:
    """Parameters by name, in the order of their declaration."""
    hints = get_type_hints(policy, include_extras=True)
    arguments = signature(policy).parameters.values()
    return {a.name: _parameter(a, hints[a.name]) for a in arguments if a.kind is Argument.KEYWORD_ONLY}


def with_parameters(policy: Policy, given: Mapping[str, object]) -> Policy:
    """The policy with these values, others at their defaults; `InvalidParameter` names the first fault."""
    return partial(policy, **read_parameters(parameters_of(policy), given))


def read_parameters(known: Mapping[str, Parameter], given: Mapping[str, object]) -> dict[str, float | str]:
    """Values converted to their parameters' types; `InvalidParameter` names the first fault."""
    for name in given:
        if name not in known:
            raise InvalidParameter(name, f"unknown; {_known(known)}")
    return {name: known[name].read(value) for name, value in given.items()}


def _parameter(argument: Argument, hint: Any) -> Parameter:
    kind, about = get_args(hint)
    if isinstance(about, Choice):
        return Parameter(argument.name, str, argument.default, 0, 1, about.meaning, get_args(kind))
    if isinstance(about, Switch):
        return Parameter(argument.name, kind, argument.default, 0, 1, about.meaning, simulated=about.simulated)
    return Parameter(argument.name, kind, argument.default, about.least, about.most, about.meaning)


def _known(known: Mapping[str, Parameter]) -> str:
    return f"this policy has {', '.join(known)}" if known else "this policy has no parameters"
