"""Columns of `motley ps` by name, or by the letter that squeue's format has for them."""

import re
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime

from rich.console import RenderableType

from motley_client.responses import Job
from motley_client.spec import SpecError
from motley_command.tables.format import Cell, age, number, table, to_the_second
from motley_command.tables.jobs import display_name, gpus, progress, rate, reason_of, short_ids, state_of

COLUMNS: dict[str, Callable[[Job, datetime], Cell]] = {
    "name": lambda job, _: display_name(job),
    "id": lambda job, _: job["id"],
    "array": lambda job, _: job["array"] or "",
    "team": lambda job, _: job["team"],
    "owner": lambda job, _: job["owner"],
    "state": lambda job, _: state_of(job),
    "gpus": lambda job, _: gpus(job),
    "type": lambda job, _: job["gpu_type"] or (ran_on["gpu_type"] if (ran_on := job.get("ran_on")) else ""),
    "node_count": lambda job, _: str(len(ran_on["nodes"] if (ran_on := job.get("ran_on")) else job["nodes"]) or ""),
    "nodes": lambda job, _: ", ".join(ran_on["nodes"] if (ran_on := job.get("ran_on")) else job["nodes"]),
    "progress": lambda job, _: progress(job),
    "rate": lambda job, _: rate(job),
    "age": lambda job, now: age(job["created_at"], now),
    "time": lambda job, now: age(job["started_at"], now) if job["started_at"] and not job["finished_at"] else "",
    "limit": lambda job, _: _field(job, "time_limit"),
    "submitted": lambda job, _: to_the_second(job["created_at"]),
    "started": lambda job, _: to_the_second(job["started_at"] or ""),
    "finished": lambda job, _: to_the_second(job["finished_at"] or ""),
    "exit": lambda job, _: number(job["exit_code"], "{}"),
    "weight": lambda job, _: _field(job, "weight") or "1",
    "tags": lambda job, _: ", ".join(f"{name}={value}" for name, value in job["spec"].get("tags", {}).items()),
    "command": lambda job, _: _command(job["spec"].get("command", "")),
    "folder": lambda job, _: _field(job, "workdir"),
    "reason": lambda job, _: reason_of(job),
}
_PAIRS = (
    "j=name i=id A=id F=array P=team a=team u=owner T=state t=state b=gpus D=node_count N=nodes M=time l=limit "
    "V=submitted S=started e=finished Q=weight p=weight o=command Z=folder R=reason r=reason"
)
SACCT = {
    "jobid": "id",
    "jobidraw": "id",
    "jobname": "name",
    "account": "team",
    "user": "owner",
    "alloctres": "gpus",
    "reqtres": "gpus",
    "submit": "submitted",
    "start": "started",
    "end": "finished",
    "elapsed": "time",
    "exitcode": "exit",
    "nodelist": "nodes",
    "nnodes": "node_count",
    "timelimit": "limit",
    "partition": "type",
    "workdir": "folder",
}
"""Columns by the names that sacct has for them."""
LETTERS = dict(pair.split("=") for pair in _PAIRS.split())


def columns_of(text: str) -> list[str]:
    """Names of columns: `name,state,reason`, or squeue's `%.18i %T`. A width in it is ignored."""
    if letters := re.findall(r"%\.?\d*([A-Za-z])", text):
        names = [LETTERS.get(letter, f"%{letter}") for letter in letters]
    else:
        written = [name.strip().lower().partition("%")[0] for name in text.split(",") if name.strip()]
        names = [SACCT.get(name, name) for name in written]
    if unknown := [name for name in names if name not in COLUMNS]:
        raise SpecError(
            f"--output: no column {', '.join(unknown)}. Columns: {', '.join(COLUMNS)}; or one of table, json, yaml."
        )
    return names


def chosen_columns(
    jobs: Iterable[Job], names: Sequence[str], *, now: datetime, headings: bool = True
) -> RenderableType:
    """A table of these columns."""
    rows = rows_of(jobs, names, now)
    return table([name.upper() for name in names], rows, empty="No jobs." if headings else "", with_headings=headings)


def rows_of(jobs: Iterable[Job], names: Sequence[str], now: datetime) -> list[list[Cell]]:
    """The cells of these columns."""
    listed = list(jobs)
    short = short_ids(job["id"] for job in listed)
    return [[short[job["id"]] if name == "id" else COLUMNS[name](job, now) for name in names] for job in listed]


def _field(job: Job, name: str) -> str:
    return str(job["spec"].get(name, ""))


def _command(command: str | list[str]) -> str:
    return command if isinstance(command, str) else " ".join(command)
