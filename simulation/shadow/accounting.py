"""Slurm's accounting as text (`sacct -P`): the GPU jobs that ran, and how many were left out for which reason."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from hostlist import BadHostlist, expand_hostlist

FORMAT = (
    "JobID,JobIDRaw,User,Account,Partition,AllocTRES,ReqTRES,Submit,Eligible,Start,End,State,Timelimit,NNodes,NodeList,"
    "JobName"
)
COMMAND = f"sacct -a -X -P -S 2026-10-01 -E 2026-11-01 -o {FORMAT} > sacct.txt"
NEEDED = ("User", "Submit", "Start", "End", "State")
OF_GPUS = ("AllocTRES", "ReqTRES", "AllocGRES", "ReqGRES")
NOTHING = {"", "Unknown", "None", "N/A", "(null)"}
RUNS = {"RUNNING", "SUSPENDED", "COMPLETING", "STOPPED", "SIGNALING", "STAGE_OUT"}
MOST_EXAMPLES = 5
ALL = "*"
"""Stands for every partition."""
PART_OF_GPU = re.compile(r"gres[/:](?:shard|mps)\b|gpu:\d+g\.")
A_DAY_S = 86_400.0
LONGEST_S = 10 * 366 * 86_400.0


class InvalidAccounting(ValueError):
    """The accounting cannot be read; the message names what and the remedy."""


class LeftOut(StrEnum):
    """Why a job is no part of the study; the first ones are no fault of the file."""

    NO_GPU = "no GPU was asked for"
    NEVER_STARTED = "it never started"
    RUNS = "it ran still"
    NO_TIME = "it ran for less than a second"
    HETEROGENEOUS = "it is a part of a heterogeneous job"
    SEVERAL_TYPES = "it ran on GPUs of several types"
    UNKNOWN_TYPE = "the type of its GPUs is not known: name that of its partition, --type PARTITION=TYPE"
    PARTS = "it had parts of GPUs (MIG, shards)"
    NO_NODES = "the nodes that are listed do not hold it"
    TIMES = "its times cannot be read, or end before they begin"
    COLUMNS = "its line has another number of columns than the first one"


EXPECTED = (LeftOut.NO_GPU, LeftOut.NEVER_STARTED, LeftOut.RUNS, LeftOut.NO_TIME)


class SlurmJob(NamedTuple):
    """A GPU job that ran to its end; times are seconds since the epoch of the file's clock."""

    id: str
    user: str
    team: str
    name: str
    gpus: int
    gpu_type: str
    nodes: tuple[str, ...]
    submitted_s: float
    """From when on it could start: its submission, or later if it waited for a time or another job."""
    started_s: float
    ended_s: float
    limit_s: float | None

    @property
    def ran_s(self) -> float:
        return self.ended_s - self.started_s

    @property
    def waited_s(self) -> float:
        return max(self.started_s - self.submitted_s, 0.0)


@dataclass(frozen=True)
class Accounting:
    """The jobs by submission, and those left out: their number by reason, and some of their ids."""

    jobs: Sequence[SlurmJob]
    left_out: Mapping[LeftOut, int]
    examples: Mapping[LeftOut, Sequence[str]]

    @property
    def unreadable(self) -> int:
        return sum(count for why, count in self.left_out.items() if why not in EXPECTED)


def without(accounting: Accounting, rest: Sequence[SlurmJob], why: LeftOut) -> Accounting:
    """The accounting without these jobs, which are counted as left out for this reason."""
    gone = {id(job) for job in rest}
    if not gone:
        return accounting
    return replace(
        accounting,
        jobs=[job for job in accounting.jobs if id(job) not in gone],
        left_out={**accounting.left_out, why: len(rest)},
        examples={**accounting.examples, why: [job.id for job in rest[:MOST_EXAMPLES]]},
    )


def in_the_window(jobs: Sequence[SlurmJob]) -> list[SlurmJob]:
    """The jobs from when on the file has all of them: what waited or ran before then began at that moment.

    `sacct -S` lists what had not ended at a time, however long before it was submitted: its first end tells that time.
    """
    began_s = min(job.submitted_s for job in jobs)
    if (first_end_s := min(job.ended_s for job in jobs)) > began_s + A_DAY_S:
        began_s = first_end_s - 1.0
    moved = [
        job._replace(submitted_s=max(job.submitted_s, began_s), started_s=max(job.started_s, began_s)) for job in jobs
    ]
    return sorted(moved, key=lambda job: (job.submitted_s, job.started_s))


@dataclass
class _Reader:
    columns: Sequence[str]
    type_of: Mapping[str, str]
    """GPU types by partition and by node, for jobs whose record names none."""
    jobs: list[SlurmJob] = field(default_factory=list)
    left_out: Counter[LeftOut] = field(default_factory=Counter)
    examples: dict[LeftOut, list[str]] = field(default_factory=lambda: defaultdict(list))

    def read(self, line: str) -> None:
        cells = _cells(line, self.columns)
        if cells is None:
            self._leave_out(LeftOut.COLUMNS, line[:40])
            return
        row = dict(zip(self.columns, cells, strict=True))
        job_id = row.get("JobID") or row.get("JobIDRaw") or f"{row['User']} {row['Submit']}"
        if re.search(r"\.[\w+]+$", job_id) or re.search(r"\.[\w+]+$", row.get("JobIDRaw", "")):
            return  # a step of a job
        found = self._job(job_id, row)
        if isinstance(found, LeftOut):
            self._leave_out(found, job_id)
        else:
            self.jobs.append(found)

    def _leave_out(self, why: LeftOut, job_id: str) -> None:
        self.left_out[why] += 1
        if len(self.examples[why]) < MOST_EXAMPLES:
            self.examples[why].append("".join(letter if letter.isprintable() else "?" for letter in job_id))

    def _job(self, job_id: str, row: Mapping[str, str]) -> SlurmJob | LeftOut:
        types = _gpus_of(row)
        if isinstance(types, LeftOut):
            return types
        if "+" in job_id:
            return LeftOut.HETEROGENEOUS
        if (times := _times_of(row)) is None or isinstance(times, LeftOut):
            return times or LeftOut.TIMES
        named = sorted(kind for kind in types if kind)
        if len(named) > 1:
            return LeftOut.SEVERAL_TYPES
        nodes = nodes_named(row.get("NodeList", ""))
        kinds = set(named) or self._types_of(nodes, row.get("Partition", ""))
        if len(kinds) != 1:
            return LeftOut.SEVERAL_TYPES if kinds else LeftOut.UNKNOWN_TYPE
        return SlurmJob(
            id=job_id,
            user=row["User"],
            team=row.get("Account") or row["User"],
            name=row.get("JobName", ""),
            gpus=max(types.values()),
            gpu_type=kinds.pop(),
            nodes=nodes,
            submitted_s=times[0],
            started_s=times[1],
            ended_s=times[2],
            limit_s=_limit_s(row.get("Timelimit", "")),
        )

    def _types_of(self, nodes: Sequence[str], partition: str) -> set[str]:
        of_nodes = {self.type_of[node] for node in nodes if node in self.type_of}
        if of_nodes:
            return of_nodes
        kind = self.type_of.get(partition) or self.type_of.get(ALL)
        return {kind} if kind else set()


def read_accounting(lines: Iterable[str], type_of: Mapping[str, str]) -> Accounting:
    """Read `sacct -P` or `-p` with its headings; `type_of` tells GPU types by node, by partition, or for all (*)."""
    numbered = iter(lines)
    columns = _columns(next(numbered, ""))
    reader = _Reader(columns, type_of)
    for line in numbered:
        if line.strip():
            reader.read(line.rstrip("\n"))
    jobs = sorted(reader.jobs, key=lambda job: job.submitted_s)
    return Accounting(jobs, reader.left_out, reader.examples)


def _columns(line: str) -> Sequence[str]:
    names = [name.split("%")[0].strip() for name in line.strip().lstrip("\ufeff").rstrip("|").split("|")]
    missing = [name for name in NEEDED if name not in names]
    if not {"JobID", "JobIDRaw"} & set(names):
        missing.append("JobID")
    if not set(OF_GPUS) & set(names):
        missing.append("AllocTRES")
    if missing:
        raise InvalidAccounting(f"The first line lacks the columns {', '.join(missing)}. Write the file by: {COMMAND}")
    return names


def _cells(line: str, columns: Sequence[str]) -> list[str] | None:
    """The cells; bars within the name of the job, which sacct does not mask, belong to it."""
    cells = line.split("|")
    if len(cells) == len(columns) + 1 and not cells[-1]:
        cells.pop()
    extra = len(cells) - len(columns)
    if extra > 0 and "JobName" in columns:
        place = columns.index("JobName")
        cells[place : place + extra + 1] = ["|".join(cells[place : place + extra + 1])]
    return cells if len(cells) == len(columns) else None


def _gpus_of(row: Mapping[str, str]) -> dict[str, int] | LeftOut:
    """GPUs by type, "" for those without one, of the first column that tells any."""
    if any(PART_OF_GPU.search(row.get(column, "")) for column in OF_GPUS):
        return LeftOut.PARTS
    for column in OF_GPUS:
        found = dict(_gpu_counts(row.get(column, "")))
        if column == "ReqGRES":  # of each node
            found = {kind: count * _count(row.get("NNodes", "")) for kind, count in found.items()}
        if any(found.values()):
            return found
    return LeftOut.NO_GPU


def _count(text: str) -> int:
    """Number of nodes, which sacct writes as `1K` or `1.50K` from 1,000 on."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(K?)", text, re.ASCII)
    return max(round(float(match[1]) * (1000 if match[2] else 1)), 1) if match else 1


def _gpu_counts(text: str) -> Iterator[tuple[str, int]]:
    """`billing=8,gres/gpu=4,gres/gpu:a100=4` or `gpu:a100:4`."""
    for part in text.split(","):
        match = re.fullmatch(r"(?:gres[/:])?gpu(?::([A-Za-z][\w.-]*))?(?:[=:](\d+))?(?:\(S:.*\))?", part.strip())
        if match:
            yield (match[1] or "").lower(), int(match[2] or 1)


def _times_of(row: Mapping[str, str]) -> tuple[float, float, float] | LeftOut | None:
    """When it could start, started and ended."""
    if row["Start"] in NOTHING:
        return LeftOut.NEVER_STARTED
    if row["End"] in NOTHING:
        return LeftOut.RUNS if row["State"].split(" ")[0] in RUNS else LeftOut.TIMES
    try:
        submitted, started, ended = (_seconds(row[name]) for name in ("Submit", "Start", "End"))
        eligible = row.get("Eligible", "")
        could = submitted if eligible in NOTHING else max(submitted, _seconds(eligible))
    except ValueError:
        return None
    if not submitted <= started <= ended <= started + LONGEST_S:
        return None
    return LeftOut.NO_TIME if ended - started < 1 else (min(could, started), started, ended)


def _seconds(text: str) -> float:
    """Of a time in ISO 8601, in one zone for the whole file, or in seconds (SLURM_TIME_FORMAT=%s)."""
    if text.isdecimal():
        return float(text)
    at = datetime.fromisoformat(text)
    return at.timestamp() if at.tzinfo else (at - datetime(1970, 1, 1)).total_seconds()  # noqa: DTZ001 - the file's own


def _limit_s(text: str) -> float | None:
    match = re.fullmatch(r"(?:(\d+)-)?(\d+):(\d+):(\d+)", text)
    if match is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60.0 + seconds


def nodes_named(text: str) -> tuple[str, ...]:
    """The nodes of `n[01-03],m7`; none where there are none, or the text is no list."""
    if text in NOTHING or text == "None assigned":
        return ()
    try:
        return tuple(expand_hostlist(text))
    except BadHostlist:
        return ()
