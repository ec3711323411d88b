"""Searches of Determined as sweeps: its `searcher` and the types of its hyperparameters."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from motley_client.spec import SpecError
from motley_command.convert.fields import Fields, number, text_of, whole

SINGLE = "single"
"""The search with one trial, which is no sweep."""
METHODS = {"random": "random", "grid": "grid", "adaptive_asha": "random", "async_halving": "random"}
HALVING = ("adaptive_asha", "async_halving")
BATCHES = "batches"


def sweep_of(searcher: Fields, hyperparameters: Mapping[str, Any], notes: list[str]) -> dict[str, Any]:
    """Fields of a sweep; all hyperparameters are in $MOTLEY_PARAMS."""
    name = searcher.take("name")
    if name not in METHODS:
        raise SpecError(f"searcher.name: {name!r} is none of {', '.join((SINGLE, *METHODS))}.")
    method = METHODS[name]
    found: dict[str, Any] = {"method": method, "metric": _metric(searcher)}
    found["parameters"] = {path: _parameter(path, one, method) for path, one in _leaves(hyperparameters)}
    if name in HALVING:
        found["early_terminate"] = _rungs(searcher, notes)
    if method != "grid":
        found["run_cap"] = whole(searcher.take("max_trials"), "searcher.max_trials")
    if at_a_time := whole(searcher.take("max_concurrent_trials", 16), "searcher.max_concurrent_trials", least=0):
        found["at_a_time"] = at_a_time
    notes.append("hyperparameters are in $MOTLEY_PARAMS as JSON, and in the command {NAME} is the value of each")
    notes.append(
        f"the metric is reported by motley_client.training: progress(step, metrics={{{found['metric']['name']!r}: …}})"
    )
    return found


def _metric(searcher: Fields) -> dict[str, str]:
    is_least = searcher.take("smaller_is_better", True)
    return {
        "name": text_of(searcher.take("metric"), "searcher.metric"),
        "goal": "minimize" if is_least else "maximize",
    }


def _rungs(searcher: Fields, notes: list[str]) -> dict[str, Any]:
    """Rungs of one bracket, the longest first, as in Determined's documentation of `divisor` and `max_rungs`."""
    longest = _longest(searcher, notes)
    eta = max(round(number(searcher.take("divisor", 4), "searcher.divisor")), 2)
    rungs = whole(searcher.take("max_rungs", searcher.take("num_rungs", 5)), "searcher.max_rungs")
    if searcher.take("mode", "standard") != "aggressive":
        notes.append("searcher.mode is not honoured: there is one bracket, the aggressive one")
    return {"min_iter": max(longest // eta ** (rungs - 1), 1), "max_iter": longest, "eta": eta}


def _longest(searcher: Fields, notes: list[str]) -> int:
    """Steps of a trial that goes on to the end."""
    length, metric, most = (searcher.take(name) for name in ("max_length", "time_metric", "max_time"))
    unit = metric or BATCHES
    if isinstance(length, Mapping) and len(length) == 1:
        ((unit, length),) = length.items()
    if unit != BATCHES:
        notes.append(f"the steps of a trial are its {unit}: report so many as the step")
    return whole(length if most is None else most, "searcher.max_length")


def _leaves(hyperparameters: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Each with its path; nested ones are joined by dots."""
    for name, value in hyperparameters.items():
        if isinstance(value, Mapping) and value.get("type") not in TYPES:
            yield from _leaves(value, f"{path}{name}.")
        else:
            yield f"{path}{name}", value


def _parameter(path: str, given: Any, method: str) -> dict[str, Any]:
    if not isinstance(given, Mapping):
        return {"value": given}
    where = f"hyperparameters.{path}"
    if method == "grid" and given["type"] in AXES:
        return {"values": _points(given, where)}
    return TYPES[given["type"]](given, where)


def _const(given: Mapping[str, Any], where: str) -> dict[str, Any]:
    return {"value": _given(given, "val", where)}


def _categorical(given: Mapping[str, Any], where: str) -> dict[str, Any]:
    return {"values": _given(given, "vals", where)}


def _int(given: Mapping[str, Any], where: str) -> dict[str, Any]:
    least, most = _ends(given, where)
    return {"min": round(least), "max": round(most)}


def _double(given: Mapping[str, Any], where: str) -> dict[str, Any]:
    least, most = _ends(given, where)
    return {"min": least, "max": most, "distribution": "uniform"}


def _log(given: Mapping[str, Any], where: str) -> dict[str, Any]:
    least, most = (_power(given, end, where) for end in _ends(given, where))
    return {"min": least, "max": most, "distribution": "log_uniform_values"}


TYPES: dict[str, Callable[[Mapping[str, Any], str], dict[str, Any]]] = {
    "const": _const,
    "categorical": _categorical,
    "int": _int,
    "double": _double,
    "log": _log,
}
AXES = ("int", "double", "log")


def _points(given: Mapping[str, Any], where: str) -> list[Any]:
    """Points of a grid: evenly spaced, both ends included, and the middle if there is one alone."""
    if "count" not in given and given["type"] != "int":
        raise SpecError(f"{where}.count: a grid needs the number of its values.")
    least, most = _ends(given, where)
    count = whole(given.get("count", round(most - least) + 1), f"{where}.count")
    points = [least + (most - least) * i / (count - 1) for i in range(count)] if count > 1 else [(least + most) / 2]
    if given["type"] == "int":
        return list(dict.fromkeys(map(round, points)))
    return [_power(given, point, where) if given["type"] == "log" else point for point in points]


def _ends(given: Mapping[str, Any], where: str) -> tuple[float, float]:
    return number(_given(given, "minval", where), f"{where}.minval"), number(
        _given(given, "maxval", where), f"{where}.maxval"
    )


def _power(given: Mapping[str, Any], exponent: float, where: str) -> float:
    base = number(given.get("base", 10), f"{where}.base")
    if base <= 1 or abs(exponent) > 300:
        raise SpecError(
            f"{where}: {base:g} to the power {exponent:g} is no value: the base is above 1, exponents are small."
        )
    return float(base**exponent)


def _given(given: Mapping[str, Any], name: str, where: str) -> Any:
    if given.get(name) is None:
        raise SpecError(f"{where}.{name}: it is missing.")
    return given[name]
