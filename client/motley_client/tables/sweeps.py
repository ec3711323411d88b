"""Tables of sweeps and their trials."""

import json
from collections.abc import Iterable, Sequence
from datetime import datetime

import yaml
from rich.console import RenderableType

from motley_client.responses import Sweep, Trial
from motley_client.tables.format import Cell, age, key_values, lines_of, number, table


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


def sweep_details(one: Sweep) -> RenderableType:
    trials = ", ".join(f"{count} {state.replace('_', ' ')}" for state, count in one["trials"].items() if count)
    facts: list[tuple[str, Cell]] = [
        ("name", one["name"]),
        ("id", str(one["id"])),
        ("team", one["team"]),
        ("owner", one["owner"]),
        ("state", f"{one['state']}: {one['message']}" if one["message"] else one["state"]),
        ("trials", f"{trials or 'none yet'}; at most {one['run_cap']}, {one['at_a_time']} at a time"),
        ("search", f"{one['method']}, {one['metric']['goal']} {one['metric']['name']}, seed {one['seed']}"),
        ("rungs", ", ".join(f"{step:,}" for step in one["rungs"]) + " steps" if one["rungs"] else ""),
        ("best", f"{_best(one)}  trial {one['best']['number']}, job {one['best']['job']}" if one["best"] else ""),
        ("parameters", lines_of(yaml.safe_dump(one["parameters"], sort_keys=False).rstrip())),
        ("spec", lines_of(yaml.safe_dump(one["spec"], sort_keys=False).rstrip())),
    ]
    return key_values((name, value) for name, value in facts if value)


def trials_table(one: Sweep, trials: Sequence[Trial]) -> RenderableType:
    names = list(one["parameters"])
    rows = [
        (
            str(trial["number"]),
            trial["state"].replace("_", " "),
            number(trial["value"], "{:.6g}"),
            *(_text(trial["params"].get(name)) for name in names),
            trial["job"],
            trial["message"],
        )
        for trial in trials
    ]
    metric = one["metric"]["name"].upper()
    return table(("TRIAL", "STATE", metric, *names, "JOB", "NOTE"), rows, empty="No trial has started yet.")


def _ended(one: Sweep) -> int:
    return sum(count for state, count in one["trials"].items() if state not in ("running", "resting"))


def _best(one: Sweep) -> str:
    return number(one["best"]["value"], "{:.6g}") if one["best"] else ""


def _text(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else value if isinstance(value, str) else json.dumps(value)
