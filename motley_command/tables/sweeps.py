"""Tables of sweeps and their trials."""

import json
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import yaml
from rich.console import RenderableType

from motley_client.responses import Sweep, SweepDetail, Trial
from motley_command.tables.format import Cell, age, key_values, lines_of, local_minute, number, table


def sweeps_table(found: Iterable[Sweep], *, now: datetime) -> RenderableType:
    rows = [
        (
            one["name"],
            one["team"],
            one["state"],
            f"{_ended(one)}/{one['run_cap']}",
            _best(one),
            age(one["created_at"], now),
            one["message"],
        )
        for one in found
    ]
    headings = ("NAME", "TEAM", "STATE", "TRIALS", "BEST", "AGE", "NOTE")
    return table(headings, rows, empty="No sweeps: motley sweep start sweep.yaml.")


def sweep_details(one: SweepDetail) -> RenderableType:
    trials = ", ".join(f"{count} {_state(state)}" for state, count in one["trials"].items() if count)
    facts: list[tuple[str, Cell]] = [
        ("name", one["name"]),
        ("id", str(one["id"])),
        ("team", one["team"]),
        ("owner", one["owner"]),
        ("state", f"{one['state']}: {one['message']}" if one["message"] else one["state"]),
        ("trials", f"{trials or 'none yet'}; at most {one['run_cap']}, {one['at_a_time']} at a time"),
        ("search", f"{one['method']}, {one['metric']['goal']} {one['metric']['name']}, seed {one['seed']}"),
        ("population", _population(one["population"])),
        ("rungs", _steps(one["rungs"])),
        ("GPU-hours", _gpu_hours(one)),
        ("ends", f"about {local_minute(one['ends_at'])}, at the pace so far" if one["ends_at"] else ""),
        ("best", f"{_best(one)}  trial {one['best']['number']}, job {one['best']['job']}" if one["best"] else ""),
        ("parameters", lines_of(yaml.safe_dump(one["parameters"], sort_keys=False).rstrip())),
        ("spec", lines_of(yaml.safe_dump(one["spec"], sort_keys=False).rstrip())),
    ]
    return key_values((name, value) for name, value in facts if value)


def trials_table(one: Sweep, trials: Sequence[Trial]) -> RenderableType:
    names = list(one["parameters"])
    is_population = one["population"] is not None
    rows = [
        (
            str(trial["number"]),
            _state(trial["state"]),
            number(trial["value"], "{:.6g}"),
            *(_text(trial["params"].get(name)) for name in names),
            trial["job"],
            *([_weights(trial)] if is_population else []),
            trial["message"],
        )
        for trial in trials
    ]
    metric = one["metric"]["name"].upper()
    headings = ("TRIAL", "STATE", metric, *names, "JOB", *(["WEIGHTS"] if is_population else []), "NOTE")
    return table(headings, rows, empty="No trial has started yet.")


def _population(given: dict[str, Any] | None) -> str:
    if given is None:
        return ""
    explored = "the same hyperparameters" if given["explore"] == "none" else "hyperparameters near theirs"
    compared = f"compared every {given['interval']:,} steps before {given['max_iter']:,}"
    return f"{given['size']} members, {compared}; copies of the best quarter replace the lowest, with {explored}"


def _steps(places: Sequence[int]) -> str:
    return ", ".join(f"{step:,}" for step in places) + " steps" if places else ""


def _state(state: str) -> str:
    """In the words of pages: a trial that rests is one whose job is held."""
    return "held" if state == "resting" else state.replace("_", " ")


def _weights(trial: Trial) -> str:
    """With whose weights it began, and what changed."""
    if trial["source"] is None:
        return ""
    step = "" if trial["source_step"] is None else f", step {trial['source_step']:,}"
    changes = [f"{name} {_text(old)} → {_text(trial['params'].get(name))}" for name, old in trial["changes"].items()]
    return f"of trial {trial['source']}{step}" + (f": {', '.join(changes)}" if changes else "")


def _gpu_hours(one: SweepDetail) -> str:
    saved = one["saved_gpu_hours"]
    estimate = f"; about {number(saved)} saved, by the cost of a step of those stopped early" if saved else ""
    return f"{number(one['gpu_hours'])} spent{estimate}"


def _ended(one: Sweep) -> int:
    return sum(count for state, count in one["trials"].items() if state not in ("running", "resting"))


def _best(one: Sweep) -> str:
    return number(one["best"]["value"], "{:.6g}") if one["best"] else ""


def _text(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else value if isinstance(value, str) else json.dumps(value)
