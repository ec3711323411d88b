"""The parameters of a policy: read from its signature, so that what is documented is what it takes.

A policy declares each as a keyword: `power: Annotated[float, Within(-4, 4, "what it does")] = -0.5`, or, where there
are some names to choose from, `first: Annotated[Literal["old", "new"], Choice("what it decides")] = "old"`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from inspect import Parameter as Argument
from inspect import signature
from typing import Any, get_args, get_type_hints

from allocation.decision import Decision

Policy = Callable[..., Decision]
"""Takes a `Problem`, and its parameters by keyword."""


class InvalidParameter(ValueError):
    """A parameter that the policy does not have, or a value that it cannot take; says which, and why."""

    def __init__(self, name: str, reason: str) -> None:
        self.name, self.reason = name, reason
        super().__init__(f"{name}: {reason}")


@dataclass(frozen=True)
class Within:
    """What a parameter may be, both ends included, and what it does."""

    least: float
    most: float
    meaning: str


@dataclass(frozen=True)
class Switch:
    """A parameter that is on or off, and what it does when it is on; simulated: only a simulation can do it."""

    meaning: str
    simulated: bool = False


@dataclass(frozen=True)
class Choice:
    """A parameter that is one of the names of its type, a `Literal`, and what they decide."""

    meaning: str


@dataclass(frozen=True)
class Parameter:
    """One parameter; `least` and `most` are 0 and 1 for one that is on or off or one of some `names`.

    simulated: a simulation can do it, and no service.
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
        """The value in the parameter's own kind, or `InvalidParameter`."""
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
    """By name, in the order in which the policy declares them."""
    hints = get_type_hints(policy, include_extras=True)
    arguments = signature(policy).parameters.values()
    return {a.name: _parameter(a, hints[a.name]) for a in arguments if a.kind is Argument.KEYWORD_ONLY}


def with_parameters(policy: Policy, given: Mapping[str, object]) -> Policy:
    """The policy with these values; what is not given keeps its default. `InvalidParameter` names the first fault."""
    return partial(policy, **read_parameters(parameters_of(policy), given))


def read_parameters(known: Mapping[str, Parameter], given: Mapping[str, object]) -> dict[str, float | str]:
    """These values, each in its parameter's own kind. `InvalidParameter` names the first fault."""
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
