"""Jobs: lists of them, one in full, why it waits, and what became of it."""

from collections.abc import Iterable, Sequence
from datetime import datetime

from rich.console import Group, RenderableType
from rich.text import Text

from motley_client.answers import (
    ACTIVE_STATES,
    Attempt,
    Event,
    Explanation,
    Job,
    JobInFull,
    Option,
    Plan,
    RateUsed,
    WouldStart,
)
from motley_client.inert import inert
from motley_client.tables.drawing import Cell, age, duration, facts, number, table, when

ID_LENGTH = 18
"""A UUIDv7 begins with its time: shorter, the jobs of one minute would look alike."""

COLOURS = {
    "running": "green",
    "succeeded": "green",
    "starting": "cyan",
    "stopping": "yellow",
    "queued": "yellow",
    "failed": "red",
    "timed_out": "red",
}


def jobs_table(jobs: Iterable[Job], *, now: datetime) -> RenderableType:
    headings = ("NAME", "ID", "TEAM", "STATE", "GPUS", "PROGRESS", "AGE", "WHY")
    return table(headings, [_job_row(job, now) for job in jobs], empty="No jobs.")


def job_details(job: JobInFull, *, now: datetime) -> RenderableType:
    """All of one job: what it is, why it waits, and its attempts."""
    lines: list[tuple[str, Cell]] = [
        ("name", job["name"]),
        ("id", job["id"]),
        ("owner", f"{job['owner']} ({job['team']})"),
        ("state", _state(job)),
        ("message", job["message"]),
        *(("waits for", f"{reason['code']}: {reason['detail']}") for reason in job["reasons"]),
        ("GPUs", gpus(job)),
        ("nodes", ", ".join(job["nodes"])),
        ("progress", progress(job)),
        ("rate", rate(job)),
        ("tags", ", ".join(f"{name}={value}" for name, value in job["spec"].get("tags", {}).items())),
        ("submitted", when(job["created_at"], now)),
        ("started", when(job["started_at"], now)),
        ("finished", when(job["finished_at"], now)),
        ("exit code", number(job["exit_code"], "{}")),
        ("work lost", f"{job['work_lost_gpu_seconds']:.0f} GPU-seconds" if job["work_lost_gpu_seconds"] else ""),
    ]
    attempts = [Text(""), attempts_table(job["attempts"], now=now)] if job["attempts"] else []
    return Group(facts(lines), *attempts)


def attempts_table(attempts: Iterable[Attempt], *, now: datetime) -> RenderableType:
    headings = ("ATTEMPT", "STATE", "OUTCOME", "EXIT", "GPUS", "NODES", "STARTED", "ENDED")
    rows = [
        (
            str(attempt["number"]),
            attempt["state"],
            attempt["outcome"] or "",
            number(attempt["exit_code"], "{}"),
            f"{attempt['gpu_count']} {attempt['gpu_type']}",
            ", ".join(attempt["nodes"]),
            when(attempt["started_at"], now),
            when(attempt["ended_at"], now),
        )
        for attempt in attempts
    ]
    return table(headings, rows, empty="No attempts.")


def events_table(events: Iterable[Event], *, now: datetime) -> RenderableType:
    headings = ("AGE", "AT", "EVENT", "ATTEMPT", "BY", "MESSAGE")
    rows = [
        (
            age(event["at"], now),
            event["at"],
            event["kind"],
            number(event["attempt"], "{}"),
            event["actor"] or "",
            event["message"],
        )
        for event in events
    ]
    return table(headings, rows, empty="Nothing has happened yet.")


def explanation(job: Job, answer: Explanation) -> RenderableType:
    """Why the job is where it is, and how fast it would be elsewhere."""
    lines: list[tuple[str, Cell]] = [
        ("job", f"{job['name']} ({job['id']})"),
        ("state", _state(job)),
        ("message", answer["message"]),
        *(("waits for", f"{reason['code']}: {reason['detail']}") for reason in answer["reasons"]),
        ("round", number(answer["round"], "{}")),
        *_would_start(answer.get("would_start")),
    ]
    return Group(facts(lines), Text(""), _rates_table(answer["rates_used"]))


def _would_start(found: WouldStart | None) -> list[tuple[str, Cell]]:
    if found is None:
        return []
    return [*(("would start", option["detail"]) for option in found["options"]), ("", found["note"])]


def plan_table(plan: Plan) -> RenderableType:
    """Where the job could run; the star is on the fastest."""
    headings = ("", "GPUS", "NODES", "STEPS/S", "RATE IS", "COST/H", "RUNS", "COST", "FREE", "STARTS")
    rows = [_option_row(option) for option in plan["options"]]
    drawn = table(headings, rows, empty="No GPU type of this cluster can run it.")
    return Group(drawn, Text(inert(plan["note"]))) if plan["note"] else drawn


def gpus(job: Job) -> str:
    """`4 a100` for what the job holds, else what it asks for: `1-16 a100|v100`."""
    if job["gpu_type"]:
        return f"{job['gpu_count']} {job['gpu_type']}"
    asked = job["spec"].get("gpus", 1)
    count = f"{asked.get('min')}-{asked.get('max')}" if isinstance(asked, dict) else str(asked)
    return f"{count} {'|'.join(job['spec'].get('gpu_types') or ['any'])}"


def progress(job: Job) -> str:
    """`1,200/2,000 (60%)`, as far as it is known."""
    made = job["progress"]
    if made is None or not (made["step"] or made["total_steps"]):
        return ""
    total = made["total_steps"]
    return f"{made['step']:,}" + (f"/{total:,} ({made['step'] / total:.0%})" if total else "")


def rate(job: Job) -> str:
    """`24.1 steps/s`, once it is measured."""
    made = job["progress"]
    return f"{made['rate']:.3g} steps/s" if made and made["rate"] else ""


def why(job: Job) -> str:
    """What keeps it waiting, or what is to be said of it."""
    waiting = job["state"] in ACTIVE_STATES and job["reasons"]
    return job["reasons"][0]["detail"] if waiting else job["message"]


def _job_row(job: Job, now: datetime) -> Sequence[Cell]:
    index = job["array_index"]
    return (
        job["name"] if index is None else f"{job['name']}[{index}]",
        job["id"][:ID_LENGTH],
        job["team"],
        _state(job),
        gpus(job),
        progress(job),
        age(job["created_at"], now),
        why(job),
    )


def _option_row(option: Option) -> Sequence[Cell]:
    return (
        "*" if option["preferred"] else "",
        f"{option['gpus']} {option['gpu_type']}",
        str(option["nodes"] or ""),
        number(option["rate"]),
        option["source"] or "",
        number(option["cost_per_hour"], "{:.2f}"),
        "" if option["run_seconds"] is None else duration(option["run_seconds"]),
        number(option["cost"], "{:.2f}"),
        str(option["free_gpus"]),
        "now" if option["can_start_now"] else option["reason"],
    )


def _rates_table(rates: Iterable[RateUsed]) -> RenderableType:
    headings = ("GPUS", "NODES", "STEPS/S", "RATE IS", "SHARE OF TIME")
    rows = [
        (
            f"{used['gpus']} {used['gpu_type']}",
            str(used["nodes"]),
            number(used["rate"]),
            used["source"],
            number(used["share"], "{:.0%}"),
        )
        for used in rates
    ]
    return table(headings, rows, empty="No round has counted on a rate of it yet.")


def _state(job: Job) -> Text:
    word = "held" if job["held"] else job["state"]
    return Text(inert(word), style=COLOURS.get(word, ""))
