"""What change of a waiting job would start it: each is tried by planning the next round with it. Writes nothing."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from itertools import islice
from math import sqrt
from typing import Any, Self
from uuid import UUID

from allocation.configurations import fewest_nodes, fewest_uneven_nodes
from allocation.explain import blocks_left, left_on_nodes
from allocation.planning import Plan
from jobs_app.fields import MOST_WEIGHT
from jobs_app.models import Job
from scheduler_app.bids import Timing
from scheduler_app.models import PolicySetting
from scheduler_app.reading import JobRow, Rows, TypeRow, busy_in_arrays
from scheduler_app.services import decide, read_for_round
from scheduler_app.snapshot import Snapshot, build_snapshot

MOST_SIZES = 3
"""Smaller gangs that are tried: each costs a round's planning."""
HALVINGS = 3
"""Of the distance, in proportion, between a weight that is too small and one that is enough."""
BEYOND_LIMIT = 16
"""Times the most that the team may ask: so far staff's weights are tried."""
ANEW = UUID(int=0)
"""Stands for the job that would be submitted in the place of this one."""


class Kind(StrEnum):
    ANOTHER_TYPE = "another_type"
    FEWER_GPUS = "fewer_gpus"
    HIGHER_WEIGHT = "higher_weight"


@dataclass(frozen=True)
class Change:
    """A change with which the next round gives the job GPUs; `changes` are fields of its spec."""

    kind: Kind
    detail: str
    changes: Mapping[str, Any]
    gpu_type: str
    gpus: int
    anew: bool = True
    """The job has to be submitted again so; else it is changed as it waits."""
    for_staff: bool = False


@dataclass(frozen=True)
class WouldStart:
    """The changes that were found, the one that costs others least first; `note` says more, or why there is none."""

    note: str
    options: list[Change] = field(default_factory=list)


def what_would_start(job: Job, now: datetime) -> WouldStart:
    """Plan the next round with one thing of the job changed, until the job starts."""
    if job.state != Job.State.QUEUED:
        return WouldStart(f"It does not wait: it is {job.get_state_display()}.")
    as_it_is = None if job.held else Trial.of(job, now, changed=False)
    if as_it_is is None:
        return WouldStart(
            "It is held: release it." if job.held else "It waits for other jobs; no change would start it."
        )
    planned, trial = as_it_is.planned(as_it_is.row), Trial.of(job, now, changed=True) or as_it_is
    if planned.throttled:
        return WouldStart("As many jobs of its array as may run at a time do; no change of this one would start it.")
    if planned.gpus:
        return WouldStart(f"Nothing has to change: the next round would give it {planned.words}.")
    found = [*_another_type(trial, planned), *_fewer_gpus(trial, planned), *_higher_weight(trial, job)]
    return WouldStart(_TRIED if found else _IN_VAIN, found)


_TRIED = "Each was tried by planning the next round with it, as things stand now."
_IN_VAIN = "No other type, smaller gang or higher weight was found with which the next round would start it."


@dataclass(frozen=True)
class Planned:
    """The next round, planned; `row` is where the job is in it, None: nowhere."""

    snapshot: Snapshot
    plan: Plan
    row: int | None
    throttled: bool

    @property
    def gpus(self) -> int:
        """How many the job gets."""
        return 0 if self._configuration < 0 else int(self.snapshot.problem.gpus[self._configuration])

    @property
    def gpu_type(self) -> str:
        return self.snapshot.type_of(self._configuration)

    @property
    def words(self) -> str:
        return f"{self.gpus} {self.gpu_type.upper()}"

    def leaves_room(self, row: JobRow, kind: str, gpus: int) -> bool:
        """Whether so many GPUs of the type, with CPUs and memory beside them, are left over for the job."""
        floor, fewest = self.snapshot.floor, fewest_uneven_nodes if row.uneven_gang else fewest_nodes
        left = left_on_nodes(floor, self.plan.owner)
        blocks = blocks_left(left, row.cpus_per_gpu, row.memory_per_gpu_mib).astype(int)
        return fewest(blocks[floor.node_type == self.snapshot.types.index(kind)].tolist(), gpus) is not None

    @property
    def _configuration(self) -> int:
        return -1 if self.row is None else int(self.plan.picks[self.row])


@dataclass(frozen=True)
class Trial:
    """The next round, with one job that may be changed."""

    rows: Rows
    timing: Timing
    busy: Mapping[UUID, int]
    setting: PolicySetting
    row: JobRow

    @classmethod
    def of(cls, job: Job, now: datetime, *, changed: bool) -> Self | None:
        """None: a round would not consider the job. `changed`: that a job was is reason to set the shares anew."""
        setting = PolicySetting.objects.current()
        rows, timing = read_for_round(now, setting, changed=changed)
        row = next((row for row in rows.jobs if row.id == job.pk), None)
        return cls(rows, timing, busy_in_arrays(), setting, row) if row else None

    def planned(self, row: JobRow) -> Planned:
        """The round, with this row in the job's place; one that is submitted anew comes last."""
        in_place = [row if other.id == self.row.id else other for other in self.rows.jobs]
        jobs = sorted(in_place, key=lambda other: other.id == ANEW)
        snapshot, left_out = build_snapshot(replace(self.rows, jobs=jobs), self.timing, self.busy)
        plan = decide(snapshot, self.setting.policy, self.setting.parameters)
        name = str(row.id)
        position = snapshot.jobs.index(name) if name in snapshot.jobs else None
        return Planned(snapshot, plan, position, row in left_out.throttled)

    def anew(self, **columns: Any) -> JobRow:
        """The job as it would be if it were submitted again, with these columns."""
        return self.row._replace(
            id=ANEW,
            array_id=None,
            at_a_time=None,
            created_at=self.timing.now,
            step=0,
            attained_gpu_s=0.0,
            work_lost_gpu_s=0.0,
            attempt_count=0,
            **columns,
        )

    @property
    def types(self) -> list[TypeRow]:
        """That have the memory which the job asks of a GPU, the cheapest first."""
        able = [kind for kind in self.rows.types if kind.memory_mib >= self.row.gpu_memory_mib]
        return sorted(able, key=lambda kind: kind.price_per_hour)

    def allows(self, kind: TypeRow) -> bool:
        return not self.row.gpu_types or kind.name in self.row.gpu_types


def _another_type(trial: Trial, as_it_is: Planned) -> Iterator[Change]:
    """The cheapest type that the job does not allow, and that has room for it."""
    for kind in trial.types:
        if trial.allows(kind) or not as_it_is.leaves_room(trial.row, kind.name, trial.row.gpus_min):
            continue
        types = [*trial.row.gpu_types, kind.name]
        planned = trial.planned(trial.anew(gpu_types=types))
        if planned.gpus:
            detail = f"If it also allowed {kind.name.upper()}, it would get {planned.words}.{_left_behind(trial.row)}"
            yield Change(Kind.ANOTHER_TYPE, detail, {"gpu_types": types}, planned.gpu_type, planned.gpus)
            return


def _fewer_gpus(trial: Trial, as_it_is: Planned) -> Iterator[Change]:
    """The largest smaller gang that finds room in what is left over."""
    row, allowed = trial.row, [kind.name for kind in trial.types if trial.allows(kind)]
    most = min(row.gpus_min - 1, len(as_it_is.snapshot.gpus))
    sizes = (size for size in range(most, 0, -1) if any(as_it_is.leaves_room(row, kind, size) for kind in allowed))
    for size in islice(sizes, MOST_SIZES):
        elastic = row.gpus_max > row.gpus_min
        planned = trial.planned(trial.anew(gpus_min=size, gpus_max=row.gpus_max if elastic else size))
        if planned.gpus:
            least = f"at least {size} instead of {row.gpus_min}" if elastic else f"{size} instead of {row.gpus_min}"
            detail = f"If it asked for {least} GPUs, it would get {planned.words}.{_left_behind(row)}"
            asked = {"min": size, "max": row.gpus_max} if elastic else size
            yield Change(Kind.FEWER_GPUS, detail, {"gpus": asked}, planned.gpu_type, planned.gpus)
            return


def _left_behind(row: JobRow) -> str:
    return " What it has done so far would stay behind." if row.step or row.attempt_count else ""


def _higher_weight(trial: Trial, job: Job) -> Iterator[Change]:
    """Not much more than is needed; first within what the team may ask, then what only staff may."""
    limit = job.team.most_job_weight
    for most, for_staff in ((limit, False), (BEYOND_LIMIT * max(limit, job.weight), True)):
        weight = _enough(trial, min(most, MOST_WEIGHT))
        if weight is not None:
            planned = trial.planned(trial.row._replace(weight=weight))
            detail = f"With a weight of {weight:g} instead of {job.weight:g}, it would get {planned.words}."
            if for_staff:
                detail += f" The team may ask for {limit:g} at most: an administrator can set it."
            changes = {"weight": weight}
            yield Change(
                Kind.HIGHER_WEIGHT, detail, changes, planned.gpu_type, planned.gpus, anew=False, for_staff=for_staff
            )
            return


def _enough(trial: Trial, most: float) -> float | None:
    """A weight up to this one with which the job starts."""
    less, enough = trial.row.weight, most

    def starts(weight: float) -> bool:
        return trial.planned(trial.row._replace(weight=weight)).gpus > 0

    if enough <= less or not starts(enough):
        return None
    for _ in range(HALVINGS):
        between = float(f"{sqrt(less * enough):.2g}")
        if not less < between < enough:
            break
        less, enough = (less, between) if starts(between) else (between, enough)
    return enough
