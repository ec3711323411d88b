"""Parameters of a recipe: their declaration, the values given for them, and the spec with the values in place.

A parameter stands in the spec as `${{ name }}`. A value that is nothing else keeps its type, so `gpus: ${{ number }}`
is a number; within a text it is written out, quoted for the shell in `command` and `setup`.
"""

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import isfinite
from typing import Any

from jobs_app.submission.fields import is_text
from jobs_app.submission.shell_quotes import first_within_quotes
from jobs_app.submission.spec import JobSpec
from web.rest.choices import guesses_of, not_one_of
from web.rest.errors import Fault

PLACE = re.compile(r"\$\{\{\s*([A-Za-z_][A-Za-z0-9_]*)\s*\}\}")
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
SHELL_TEXTS = ("command", "setup")
"""Fields whose texts the shell reads."""
DEEPEST = 20
"""Levels of a spec in which parameters are looked for."""
Value = str | int | float | bool
SAMPLES: dict[str, Value] = {"text": "x", "integer": 1, "number": 1.0, "boolean": False}
"""Values of a type, for the check of a recipe whose parameter has no default."""
LONGEST_TEXT = 10_000


class WrongValue(Exception):
    """A value does not fit its parameter; the text says what does."""


@dataclass(frozen=True)
class Parameter:
    """A parameter; without a default its value must be given."""

    name: str
    type: str = "text"
    default: Value | None = None
    description: str = ""
    choices: tuple[Value, ...] = ()

    @classmethod
    def stored(cls, row: Mapping[str, Any]) -> "Parameter":
        return cls(**{**row, "choices": tuple(row["choices"])})

    def as_row(self) -> dict[str, Any]:
        return asdict(self) | {"choices": list(self.choices)}

    @property
    def sample(self) -> Value:
        """A value by which a recipe can be checked."""
        if self.default is not None:
            return self.default
        return self.choices[0] if self.choices else SAMPLES[self.type]

    def read(self, given: Any) -> Value:
        """The value as of the parameter's type, be it written as text; raises `WrongValue`."""
        value = READERS[self.type](given)
        if self.choices and value not in self.choices:
            raise WrongValue(not_one_of(value, self.choices))
        return value


def _text(given: Any) -> str:
    if isinstance(given, bool) or not isinstance(given, str | int | float):
        raise WrongValue("Write a text.")
    text = str(given)
    if len(text) > LONGEST_TEXT or not is_text(text):
        raise WrongValue("Write a text of at most 10,000 characters, without NUL bytes.")
    return text


def _integer(given: Any) -> int:
    if isinstance(given, str) and re.fullmatch(r"[+-]?[0-9]{1,18}", given.strip()):
        return int(given)
    if isinstance(given, bool) or not isinstance(given, int) or abs(given) >= 10**18:
        raise WrongValue("Write a whole number, e.g. 4.")
    return given


def _number(given: Any) -> int | float:
    wrong = WrongValue("Write a number, e.g. 0.1 or 1e-4.")
    try:
        value = float(given) if isinstance(given, str) else given
        if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
            raise wrong
    except (ValueError, OverflowError):
        raise wrong from None
    return value


def _boolean(given: Any) -> bool:
    words = {"true": True, "false": False, "yes": True, "no": False, "on": True, "off": False}
    if isinstance(given, bool):
        return given
    if isinstance(given, str) and given.strip().lower() in words:
        return words[given.strip().lower()]
    raise WrongValue("Write true or false.")


READERS: dict[str, Callable[[Any], Value]] = {
    "text": _text,
    "integer": _integer,
    "number": _number,
    "boolean": _boolean,
}


def type_of(value: Any) -> str:
    """Type of a parameter of which only the default is given."""
    match value:
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
    return "text"


def places_in(value: Any, depth: int = DEEPEST) -> Iterator[str]:
    """Names of the parameters in a spec, also several times. What is nested deeper no spec has."""
    if isinstance(value, str):
        yield from PLACE.findall(value)
    elif depth and isinstance(value, Mapping | list):
        for one in value.values() if isinstance(value, Mapping) else value:
            yield from places_in(one, depth - 1)


def declaration_faults(spec: Mapping[str, Any], parameters: Sequence[Parameter]) -> Iterator[Fault]:
    """Faults of parameters and their places: undeclared, unused, named as a field of a job, quoted twice."""
    declared, used = [one.name for one in parameters], dict.fromkeys(places_in(spec))
    fields = JobSpec().fields
    for name in declared:
        pointer = f"/parameters/{name}"
        if not NAME.fullmatch(name):
            yield Fault(pointer=pointer, code="invalid", detail="Names consist of letters, digits and '_'.")
        elif name in fields:
            text = f"{name} is a field of a job, which --set would mean: give the parameter another name."
            yield Fault(pointer=pointer, code="field_of_a_job", detail=text)
        elif name not in used:
            text = f"The spec does not use it: write ${{{{ {name} }}}} where its value belongs, or leave it out."
            yield Fault(pointer=pointer, code="unused", detail=text)
    for name, guess in guesses_of(used, declared).items():
        text = f"${{{{ {name} }}}} is no parameter.{guess} Declare it under parameters."
        yield Fault(pointer="/spec", code="undeclared", detail=text)
    for field in SHELL_TEXTS:
        if isinstance(line := spec.get(field), str) and (found := first_within_quotes(line, PLACE)):
            detail = f"Write ${{{{ {found[1]} }}}} outside of quotes: its value is quoted for the shell."
            yield Fault(pointer=f"/spec/{field}", code="quoted_twice", detail=detail)


def values_for(parameters: Sequence[Parameter], given: Mapping[str, Any]) -> tuple[dict[str, Value], list[Fault]]:
    """Value of each parameter, given or by default, and the faults of those that are given."""
    values: dict[str, Value] = {}
    faults = _unknown(given, parameters)
    for one in parameters:
        pointer = f"/parameters/{one.name}"
        try:
            if one.name in given:
                values[one.name] = one.read(given[one.name])
            elif one.default is not None:
                values[one.name] = one.default
            else:
                faults.append(Fault(pointer=pointer, code="required", detail=f"Give a value: {_asked(one)}."))
        except WrongValue as error:
            faults.append(Fault(pointer=pointer, code="invalid", detail=str(error)))
    return values, faults


def with_values(spec: Mapping[str, Any], values: Mapping[str, Value]) -> dict[str, Any]:
    """The spec with values in place of parameters."""
    return {
        field: _filled(part, values, quoted=field in SHELL_TEXTS, depth=DEEPEST - 1) for field, part in spec.items()
    }


def _filled(part: Any, values: Mapping[str, Value], *, quoted: bool, depth: int) -> Any:
    """As deep as `places_in` looks, for which the spec is a level."""
    if depth and isinstance(part, Mapping):
        return {name: _filled(one, values, quoted=False, depth=depth - 1) for name, one in part.items()}
    if depth and isinstance(part, list):  # a command that is a list is executed as it is
        return [_filled(one, values, quoted=False, depth=depth - 1) for one in part]
    if not isinstance(part, str):
        return part
    if (whole := PLACE.fullmatch(part.strip())) and not quoted:
        return values[whole[1]]
    return PLACE.sub(lambda found: _written(values[found[1]], quoted=quoted), part)


def _written(value: Value, *, quoted: bool) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return shlex.quote(text) if quoted else text


def _unknown(given: Iterable[str], parameters: Sequence[Parameter]) -> list[Fault]:
    names = [one.name for one in parameters]
    listed = f"The parameters are: {', '.join(names)}." if names else "The recipe has no parameters."
    return [
        Fault(
            pointer=f"/parameters/{name[:100]}",
            code="unknown",
            detail=f"Unknown parameter {name[:100]!r}.{guess} {listed}",
        )
        for name, guess in guesses_of(given, names).items()
    ]


def _asked(one: Parameter) -> str:
    kind = {"text": "a text", "integer": "a whole number", "number": "a number", "boolean": "true or false"}[one.type]
    return f"{kind}, {one.description.rstrip('.')}" if one.description else kind
