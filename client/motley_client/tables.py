"""Jobs, nodes and rounds as tables for people."""

from collections.abc import Iterable, Sequence
from datetime import datetime

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from motley_client.answers import ACTIVE_STATES, Attempt, Job, Node, Round
from motley_client.inert import inert

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
    return _table(headings, [_job_row(job, now) for job in jobs], empty="No jobs.")


def nodes_table(nodes: Iterable[Node]) -> RenderableType:
    headings = ("NODE", "GPU TYPE", "FREE", "GPUS", "STATE", "CPUS", "MEMORY", "ENGINE", "REASON")
    return _table(headings, [_node_row(node) for node in nodes], empty="No nodes.")


def rounds_table(rounds: Iterable[Round], *, now: datetime) -> RenderableType:
    headings = ("ROUND", "AGE", "POLICY", "JOBS", "GAP", "SOLVED IN", "STARTS", "STOPS", "MOVES", "STATUS", "PRICES")
    return _table(headings, [_round_row(round_, now) for round_ in rounds], empty="No rounds yet.")


def job_details(job: Job, *, now: datetime) -> RenderableType:
    """All of one job: what it is, why it waits, and its attempts."""
    facts: list[tuple[str, str | Text]] = [
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
        ("submitted", _when(job["created_at"], now)),
        ("started", _when(job["started_at"], now)),
        ("finished", _when(job["finished_at"], now)),
        ("exit code", "" if job["exit_code"] is None else str(job["exit_code"])),
        ("work lost", f"{job['work_lost_gpu_seconds']:.0f} GPU-seconds" if job["work_lost_gpu_seconds"] else ""),
    ]
    lines = Table.grid(padding=(0, 2))
    for name, value in facts:
        if value:
            lines.add_row(Text(name, style="bold"), _text(value))
    return Group(lines, *([Text(""), _attempts_table(job["attempts"], now)] if job["attempts"] else []))


def gpus(job: Job) -> str:
    """`4 a100` for what the job holds or held last, else what it asks for: `1-16 a100|v100`."""
    if job["gpu_type"]:
        return f"{job['gpu_count']} {job['gpu_type']}"
    asked = job["spec"].get("gpus", 1)
    count = f"{asked.get('min')}-{asked.get('max')}" if isinstance(asked, dict) else str(asked)
    return f"{count} {'|'.join(job['spec'].get('gpu_types') or ['any'])}"


def progress(job: Job) -> str:
    """`1,200/2,000 (60%)`, as far as it is known."""
    made = job["progress"]
    if made is None:
        return ""
    total = made["total_steps"]
    return f"{made['step']:,}" + (f"/{total:,} ({made['step'] / total:.0%})" if total else "")


def rate(job: Job) -> str:
    """`24.1 steps/s`, once it is measured."""
    made = job["progress"]
    return f"{made['rate']:.3g} steps/s" if made and made["rate"] else ""


def age(at: str | None, now: datetime) -> str:
    """How long ago, in the two digits or so that matter: `45s`, `12m`, `3h`, `2d`."""
    if not at:
        return ""
    seconds = max((now - datetime.fromisoformat(at)).total_seconds(), 0)
    for unit, length in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length:.0f}{unit}"
    return f"{seconds:.0f}s"


def _job_row(job: Job, now: datetime) -> Sequence[str | Text]:
    index = job.get("array_index")
    return (
        job["name"] if index is None else f"{job['name']}[{index}]",
        job["id"][:ID_LENGTH],
        job["team"],
        _state(job),
        gpus(job),
        progress(job),
        age(job["created_at"], now),
        _why(job),
    )


def _node_row(node: Node) -> Sequence[str | Text]:
    return (
        node["name"],
        node["gpu_type"] + (" (emulated)" if node["emulated"] else ""),
        str(node["free_gpus"]),
        str(node["gpus"]),
        node["state"],
        str(node["cpus"]),
        f"{node['memory_mib'] / 1024:.0f} GiB",
        node["engine"],
        node["reason"],
    )


def _round_row(round_: Round, now: datetime) -> Sequence[str | Text]:
    return (
        str(round_["number"]),
        age(round_["started_at"], now),
        round_["policy"],
        str(round_["jobs"]),
        "" if round_["gap"] is None else f"{round_['gap']:.2%}",
        f"{round_['solve_seconds'] * 1000:.0f} ms",
        str(round_["starts"]),
        str(round_["stops"]),
        str(round_["moves"]),
        round_["status"],
        ", ".join(f"{gpu_type} {price:.3g}" for gpu_type, price in round_["prices"].items()),
    )


def _attempts_table(attempts: Iterable[Attempt], now: datetime) -> RenderableType:
    headings = ("ATTEMPT", "STATE", "OUTCOME", "EXIT", "GPUS", "NODES", "STARTED", "ENDED")
    rows = [
        (
            str(attempt["number"]),
            attempt["state"],
            attempt["outcome"] or "",
            "" if attempt["exit_code"] is None else str(attempt["exit_code"]),
            f"{attempt['gpu_count']} {attempt['gpu_type']}",
            ", ".join(attempt["nodes"]),
            _when(attempt["started_at"], now),
            _when(attempt["ended_at"], now),
        )
        for attempt in attempts
    ]
    return _table(headings, rows, empty="No attempts.")


def _state(job: Job) -> Text:
    word = "held" if job["held"] else job["state"]
    return Text(inert(word), style=COLOURS.get(word, ""))


def _why(job: Job) -> str:
    waiting = job["state"] in ACTIVE_STATES and job["reasons"]
    return job["reasons"][0]["detail"] if waiting else job["message"]


def _when(at: str | None, now: datetime) -> str:
    return f"{age(at, now)} ago ({at})" if at else ""


def _text(value: str | Text) -> Text:
    return value if isinstance(value, Text) else Text(inert(value))


def _cell(value: str | Text) -> Text:
    """One line, cut where it does not fit."""
    cell = _text(value)
    cell.no_wrap, cell.overflow = True, "ellipsis"
    return cell


def _table(headings: Sequence[str], rows: Sequence[Sequence[str | Text]], *, empty: str) -> RenderableType:
    if not rows:
        return Text(empty)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for place, heading in enumerate(headings):
        # On a narrow terminal the name and the last column, which is prose, give way; states and ids do not.
        # Columns that may wrap are the ones that rich narrows first; their cells are cut instead.
        gives_way = place in {0, len(headings) - 1}
        table.add_column(heading, no_wrap=not gives_way, overflow="ellipsis")
    for row in rows:
        table.add_row(*map(_cell, row))
    return table
