"""Hyperparameters of a sweep, in the words of W&B's sweep files, as a search space."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from jobs_app.errors import InvalidSpec
from jobs_app.submission.fields import is_text
from sweeps.space import Choice, Parameter, Range, Space, Value
from web.rest.choices import guess_of, not_one_of, shortened
from web.rest.errors import Fault

MOST_PARAMETERS, MOST_VALUES, MOST_DIGITS = 50, 1_000, 15
LONGEST_TEXT = 500
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
SCIENTIFIC = re.compile(r"[+-]?[0-9]+(\.[0-9]*)?[eE][+-]?[0-9]{1,3}", re.ASCII)
FIELDS = ("value", "values", "min", "max", "q", "distribution")
WANTED = {
    "constant": ("value",),
    "categorical": ("values",),
    "int_uniform": ("min", "max"),
    "uniform": ("min", "max"),
    "q_uniform": ("min", "max", "q"),
    "log_uniform_values": ("min", "max"),
}
"""Distribution → the fields that it has."""
EXAMPLES = "{min: 0.0001, max: 0.1}, {values: [64, 128]} or {value: 3}"


def space_of(parameters: Any) -> Space:
    """The search space of `parameters`, by name: not every database keeps the order of the file.

    Raises `InvalidSpec` with every fault.
    """
    if not isinstance(parameters, Mapping) or not parameters:
        raise InvalidSpec.at("/parameters", "invalid", f"Give at least one parameter, as lr: {EXAMPLES}.")
    if len(parameters) > MOST_PARAMETERS:
        raise InvalidSpec.at("/parameters", "too_many", f"At most {MOST_PARAMETERS} parameters are searched.")
    space: dict[str, Parameter] = {}
    faults: list[Fault] = []
    for name, given in parameters.items():
        try:
            space[_name(name)] = _parameter(given)
        except ValueError as error:
            faults.append(Fault(pointer=f"/parameters/{str(name)[:64]}", code="invalid", detail=str(error)))
    if faults:
        raise InvalidSpec(faults)
    return dict(sorted(space.items()))


def _name(name: Any) -> str:
    if not NAME.fullmatch(str(name)):
        raise ValueError("A name is a letter or _, then letters, digits, _, - and dots, 64 characters at most.")
    return str(name)


def _parameter(given: Any) -> Parameter:
    if not isinstance(given, Mapping):
        raise ValueError(f"{shortened(given)} is no parameter: write {EXAMPLES}.")
    if unknown := [field for field in given if field not in FIELDS]:
        raise ValueError(f"Unknown field {shortened(unknown[0])}.{guess_of(str(unknown[0]), FIELDS)}")
    distribution = given.get("distribution") or _usual_distribution(given)
    if not isinstance(distribution, str) or distribution not in WANTED:
        raise ValueError(f"distribution: {not_one_of(distribution, WANTED)}")
    _check_fields(distribution, given)
    if distribution in ("constant", "categorical"):
        return _choice(given)
    return _range(distribution, given)


def _usual_distribution(given: Mapping[str, Any]) -> str:
    """The distribution of a parameter that names none: as W&B has it."""
    if "value" in given:
        return "constant"
    if "values" in given:
        return "categorical"
    if "q" in given:
        return "q_uniform"
    return "int_uniform" if all(type(given.get(name)) is int for name in ("min", "max")) else "uniform"


def _check_fields(distribution: str, given: Mapping[str, Any]) -> None:
    wanted, has = set(WANTED[distribution]), given.keys() - {"distribution"}
    if missing := sorted(wanted - has):
        raise ValueError(f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing: write {EXAMPLES}.")
    if extra := sorted(has - wanted):
        raise ValueError(f"{extra[0]} has no meaning for the distribution {distribution}: leave it out.")


def _choice(given: Mapping[str, Any]) -> Choice:
    values = [given["value"]] if "value" in given else given["values"]
    if not isinstance(values, Sequence) or isinstance(values, str) or not values:
        raise ValueError("values is a list with at least one value.")
    if len(values) > MOST_VALUES:
        raise ValueError(f"At most {MOST_VALUES:,} values are searched.")
    read = tuple(map(_value, values))
    if len({(type(value), value) for value in read}) < len(read):
        raise ValueError("values has the same value twice.")
    return Choice(read)


def _value(given: Any) -> Value:
    value: Value = _numeric(given)
    match value:
        case None | bool():
            return value
        case int() | float() if abs(value) < 10**MOST_DIGITS:
            return value
        case str() if len(value) <= LONGEST_TEXT and is_text(value):
            return value
    raise ValueError(f"{shortened(value)} is neither a number, a text, true, false nor null.")


def _range(distribution: str, given: Mapping[str, Any]) -> Range:
    least, most, step = (_number(name, given[name]) if name in given else None for name in ("min", "max", "q"))
    assert least is not None  # noqa: S101 - checked above
    assert most is not None  # noqa: S101
    if least >= most:
        raise ValueError(f"min, {least:g}, must be less than max, {most:g}.")
    if distribution == "log_uniform_values" and least <= 0:
        raise ValueError(f"min, {least:g}, must be greater than 0 for log_uniform_values.")
    if step is not None and not 0 < step <= most - least:
        raise ValueError(f"q, {step:g}, must be greater than 0 and at most max - min.")
    whole = all(type(given.get(name, 1)) is int for name in ("min", "max", "q"))
    is_integer = distribution == "int_uniform" or (distribution == "q_uniform" and whole)
    if is_integer and not (float(least).is_integer() and float(most).is_integer()):
        raise ValueError("min and max are whole numbers for int_uniform.")
    return Range(least, most, is_integer=is_integer, log=distribution == "log_uniform_values", step=step)


def _number(name: str, value: Any) -> float:
    value = _numeric(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 10**MOST_DIGITS:
        raise ValueError(f"{name}: {shortened(value)} is not a number.")
    return value


def _numeric(value: Any) -> Any:
    """The value; of a text like 1e-5, which YAML 1.1 does not read as a number, the number."""
    return float(value) if isinstance(value, str) and SCIENTIFIC.fullmatch(value) else value
