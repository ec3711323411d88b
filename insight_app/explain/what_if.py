"""What-if analysis: changes of a waiting job that would start it, each tested by planning the next round. Read-only."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from itertools import islice
from math import sqrt
from typing import Any, Self
from uuid import UUID

import numpy as np

from accounting_app.fairness.budgets import read_budgets, used_up
from allocation.gangs import fewest_nodes, fewest_uneven_nodes, servable_gpus
from allocation.plan_round import Plan
from allocation.policies import prices_in_hours
from allocation.rounds.pending_reasons import left_on_nodes
from insight_app.gpu_prices.wording import words_of_holding
from jobs_app.models import Job, JobDependency
from jobs_app.models.job import begin_time_text
from jobs_app.models.team import MOST_WEIGHT
from scheduler_app.models import PolicySetting
from scheduler_app.round.inputs import InputRows, JobRow, NodeRow, TypeRow
from scheduler_app.round.job_options import Timing
from scheduler_app.round.reason_texts import MOST_NAMED, names_of
from scheduler_app.round.run_round import decide, ids_set_aside, read_for_round, snapshot_without
from scheduler_app.round.set_aside import Kind, set_aside_at
from scheduler_app.round.snapshot import Snapshot

MOST_SIZES = 3
"""Number of smaller gang sizes that are tried; each costs one planned round."""
HALVINGS = 3
"""Bisection steps (geometric) between a weight that is too small and one that is sufficient."""
BEYOND_LIMIT = 16
"""Weights up to this multiple of the team's limit are tried for staff."""
RESUBMITTED = UUID(int=0)
"""Id of the job that would be submitted in place of this one."""


class ChangeKind(StrEnum):
    ANOTHER_TYPE = "another_type"
    FEWER_GPUS = "fewer_gpus"
    HIGHER_WEIGHT = "higher_weight"


@dataclass(frozen=True)
class ProposedChange:
    """A change with which the next round would start the job; `changes` are fields of its spec."""

    kind: ChangeKind
    detail: str
    changes: Mapping[str, Any]
    gpu_type: str
    gpus: int
    anew: bool = True
    """True: the job must be resubmitted (cloned) with the change; False: it can be changed while it waits."""
    for_staff: bool = False


@dataclass(frozen=True)
class WouldStart:
    """Changes that would start the job, the least costly for other jobs first; `note` explains the result."""

    note: str
    options: list[ProposedChange] = field(default_factory=list)


def what_would_start(job: Job, now: datetime) -> WouldStart:
    """Changes of one field of the job with which the next round would start it."""
    if job.state != Job.State.QUEUED:
        return WouldStart(f"The job is not waiting: it {_state_text(Job.State(job.state))}.")
    as_it_is = None if job.held else WhatIf.of(job, now, changed=False)
    if as_it_is is None:
        return WouldStart(_why_not_considered(job, now))
    planned, what_if = as_it_is.planned(as_it_is.row), WhatIf.of(job, now, changed=True) or as_it_is
    if planned.throttled:
        return WouldStart("The limit of running jobs of its array is reached; no change of this job would start it.")
    if planned.gpus:
        return WouldStart(f"No change is needed: the next round would give it {planned.words}.")
    found = [*_another_type(what_if, planned), *_fewer_gpus(what_if, planned)]
    found += _higher_weight(what_if, job, planned)
    return WouldStart(_FOUND if found else _NONE_FOUND, found)


def _state_text(state: Job.State) -> str:
    """`is running`, `has failed`."""
    if state not in Job.FINAL:
        return f"is {state.label}"
    return f"has been {state.label}" if state == Job.State.CANCELLED else f"has {state.label}"


def _why_not_considered(job: Job, now: datetime) -> str:
    """Why no round considers the job now, every reason."""
    causes = ["The job is held: release it."] if job.held else []
    waits = JobDependency.objects.filter(child=job).unmet().exists()
    if job.begin_time and job.begin_time > now:
        text = begin_time_text(job.begin_time)
        causes.append(text if waits else f"{text} Change or remove that time, and it is considered before.")
    if waits:
        causes.append(f"{'It also' if causes else 'The job'} waits for other jobs; no change would start it.")
    return " ".join(causes) or _why_left_out(job, now)


def _why_left_out(job: Job, now: datetime) -> str:
    """Why rounds leave out a job that is neither held nor waits for a time or a job."""
    if str(job.pk) in set_aside_at(Kind.JOB, now):
        return "The scheduler failed on the job and leaves it out of rounds for a while; the error is its reason."
    budget = used_up(read_budgets(now, [job.team_id])).get(job.team_id)
    if budget:
        return f"{budget.why_jobs_wait} No change of this job would start it before; a larger budget would."
    return "No round considers the job at the moment: it pauses after an end, and is considered once that is over."


_FOUND = "Each change was tested by planning the next round with it, in the current state of the cluster."
_NONE_FOUND = (
    "No other GPU type, smaller number of GPUs or higher weight was found with which the next round would start it."
)


@dataclass(frozen=True)
class PlannedRound:
    """The planned next round; `row` is the job's row in it, None if it was left out."""

    snapshot: Snapshot
    plan: Plan
    row: int | None
    throttled: bool
    nodes: Sequence[NodeRow]
    in_hours: bool = False
    """Whether its policy counts prices in hours that others wait per GPU-hour."""

    @property
    def gpus(self) -> int:
        """Number of GPUs that the job gets."""
        return 0 if self._configuration < 0 else int(self.snapshot.problem.gpus[self._configuration])

    @property
    def running(self) -> set[str]:
        """Ids of the jobs that get GPUs."""
        return {self.snapshot.jobs[row] for row in np.flatnonzero(self.plan.assignment >= 0).tolist()}

    @property
    def gpu_type(self) -> str:
        return self.snapshot.type_of(self._configuration)

    @property
    def words(self) -> str:
        return f"{self.gpus} {self.gpu_type.upper()}"

    @property
    def prices(self) -> Mapping[str, float]:
        """Shadow prices of the round by GPU type, in hours that others wait per GPU-hour; empty: in other units."""
        decided = self.plan.decision.prices.tolist()
        return dict(zip(self.snapshot.types, decided, strict=True)) if self.in_hours else {}

    def price_words(self, prices: Mapping[str, float]) -> str:
        """What the GPUs of the job cost others by these prices, as a sentence; empty: nothing, or it is not known."""
        words = words_of_holding(self.gpus, prices.get(self.gpu_type, 0.0), held="these GPUs")
        return f" {words}." if words else ""

    def has_room_for(self, row: JobRow, kind: str, gpus: int) -> bool:
        """Whether a gang of this size fits on the type's remaining GPUs, CPUs and memory."""
        inventory, fewest = self.snapshot.inventory, fewest_uneven_nodes if row.uneven_gang else fewest_nodes
        left = left_on_nodes(inventory, self.plan.owner)
        least = np.zeros((len(left[0]), 2)) if inventory.node_least is None else inventory.node_least
        cpus, memory_mib = np.maximum((row.cpus_per_gpu, row.memory_per_gpu_mib), least).T
        blocks = servable_gpus(*left, cpus_per_gpu=cpus, memory_per_gpu_mib=memory_mib)
        usable = (inventory.node_type == self.snapshot.types.index(kind)) & np.array(self.with_storage(row))
        at_one_engine = [usable & nodes for nodes in inventory.domains] or [usable]
        return any(fewest(blocks[nodes].tolist(), gpus) is not None for nodes in at_one_engine)

    def with_storage(self, row: JobRow) -> list[bool]:
        """Whether each node has the storage that the job names."""
        return [node.storage.issuperset(row.needs) for node in self.nodes]

    @property
    def _configuration(self) -> int:
        return -1 if self.row is None else int(self.plan.assignment[self.row])


@dataclass(frozen=True)
class WhatIf:
    """Input of the next round, in which one job may be replaced."""

    rows: InputRows
    timing: Timing
    setting: PolicySetting
    row: JobRow
    aside: Collection[UUID] = ()
    """Jobs that rounds leave out now because the scheduler raised an error over them."""

    @classmethod
    def of(cls, job: Job, now: datetime, *, changed: bool) -> Self | None:
        """None if a round would not consider the job. `changed`: whether shares are recomputed."""
        setting = PolicySetting.objects.current()
        rows, timing = read_for_round(now, setting, changed=changed)
        aside = ids_set_aside(rows, now)
        row = next((row for row in rows.jobs if row.id == job.pk and row.id not in aside), None)
        return cls(rows, timing, setting, row, aside) if row else None

    def planned(self, row: JobRow) -> PlannedRound:
        """Plan the round with this row in place of the job; a resubmitted job is the last of the queue."""
        in_place = [row if other.id == self.row.id else other for other in self.rows.jobs]
        jobs = sorted(in_place, key=lambda other: other.id == RESUBMITTED)
        rows = replace(self.rows, jobs=jobs)
        snapshot, left_out = snapshot_without(self.aside, rows, self.timing)
        plan = decide(snapshot, self.setting.policy, self.setting.parameters)
        name = str(row.id)
        position = snapshot.jobs.index(name) if name in snapshot.jobs else None
        in_hours = prices_in_hours(self.setting.policy)
        return PlannedRound(snapshot, plan, position, row in left_out.throttled, self.rows.nodes, in_hours)

    def anew(self, **columns: Any) -> JobRow:
        """The job as resubmitted, with these columns changed."""
        return self.row._replace(
            id=RESUBMITTED,
            array_id=None,
            at_a_time=None,
            array_tasks=None,
            created_at=self.timing.now,
            step=0,
            attained_gpu_s=0.0,
            work_lost_gpu_s=0.0,
            attempt_count=0,
            **columns,
        )

    @property
    def types(self) -> list[TypeRow]:
        """GPU types with enough memory for the job, the cheapest first."""
        able = [kind for kind in self.rows.types if kind.memory_mib >= self.row.gpu_memory_mib]
        return sorted(able, key=lambda kind: kind.price_per_hour)

    def fewest_on(self, kind: TypeRow, replicas: int | None = None) -> int:
        """GPUs of the type that so many replicas take, by default the fewest; 0: no replica can be there."""
        row = self.row
        least = row.gpus_per_replica.replicas(row.gpus_min, row.gpus_max)[0] if replicas is None else replicas
        return least * row.gpus_per_replica.on(kind.name)

    def allows(self, kind: TypeRow) -> bool:
        return not self.row.gpu_types or kind.name in self.row.gpu_types


def _another_type(what_if: WhatIf, as_it_is: PlannedRound) -> Iterator[ProposedChange]:
    """The cheapest GPU type that the job does not allow and that has room for it."""
    for kind in what_if.types:
        gpus = what_if.fewest_on(kind)
        if what_if.allows(kind) or not gpus or not as_it_is.has_room_for(what_if.row, kind.name, gpus):
            continue
        types = [*what_if.row.gpu_types, kind.name]
        planned = what_if.planned(what_if.anew(gpu_types=types))
        if planned.gpus:
            detail = (
                f"If it also allowed {kind.name.upper()}, it would get {planned.words}.{_progress_lost(what_if.row)}"
                f"{planned.price_words(as_it_is.prices)}"
            )
            yield ProposedChange(ChangeKind.ANOTHER_TYPE, detail, {"gpu_types": types}, planned.gpu_type, planned.gpus)
            return


def _fewer_gpus(what_if: WhatIf, as_it_is: PlannedRound) -> Iterator[ProposedChange]:
    """The largest smaller gang, in replicas where these take several GPUs, that fits on the remaining GPUs."""
    row, allowed = what_if.row, [kind for kind in what_if.types if what_if.allows(kind)]
    replica = row.gpus_per_replica
    fewest, most = replica.replicas(row.gpus_min, row.gpus_max)
    elastic, (name, noun) = most > fewest, ("replicas", "replicas") if replica.several else ("gpus", "GPUs")

    def has_room(size: int) -> bool:
        gangs = [(kind.name, gpus) for kind in allowed if (gpus := what_if.fewest_on(kind, size))]
        return any(as_it_is.has_room_for(row, *gang) for gang in gangs)

    sizes = filter(has_room, range(min(fewest - 1, len(as_it_is.snapshot.gpus)), 0, -1))
    for size in islice(sizes, MOST_SIZES):
        gpus_min, gpus_max = replica.gpus(size, most if elastic else size)
        planned = what_if.planned(what_if.anew(gpus_min=gpus_min, gpus_max=gpus_max))
        if planned.gpus:
            least = f"at least {size} instead of {fewest}" if elastic else f"{size} instead of {fewest}"
            detail = f"If it asked for {least} {noun}, it would get {planned.words}.{_progress_lost(row)}"
            detail += planned.price_words(as_it_is.prices)
            asked = {"min": size, "max": most} if elastic else size
            yield ProposedChange(ChangeKind.FEWER_GPUS, detail, {name: asked}, planned.gpu_type, planned.gpus)
            return


def _progress_lost(row: JobRow) -> str:
    return " Its progress so far would be lost." if row.step or row.attempt_count else ""


def _higher_weight(what_if: WhatIf, job: Job, as_it_is: PlannedRound) -> Iterator[ProposedChange]:
    """A higher weight, close to the smallest that suffices: within the team's limit, else for staff only.

    It takes GPUs from others: they are told, and who may decide that.
    """
    limit = job.team.most_job_weight
    for most, for_staff in ((limit, False), (BEYOND_LIMIT * max(limit, job.weight), True)):
        weight = _sufficient_weight(what_if, min(most, MOST_WEIGHT))
        if weight is not None:
            planned = what_if.planned(what_if.row._replace(weight=weight))
            detail = f"With a weight of {weight:g} instead of {job.weight:g}, it would get {planned.words}"
            detail += f", and {_at_whose_cost(as_it_is, planned, job)}."
            if for_staff:
                detail += f" The team's limit is {limit:g}: only an administrator can set this weight."
            else:
                detail += f" Members of team {job.team.name} may set up to {limit:g}, and should agree on it."
            detail += planned.price_words(as_it_is.prices)
            changes = {"weight": weight}
            yield ProposedChange(
                ChangeKind.HIGHER_WEIGHT,
                detail,
                changes,
                planned.gpu_type,
                planned.gpus,
                anew=False,
                for_staff=for_staff,
            )
            return


def _at_whose_cost(before: PlannedRound, after: PlannedRound, job: Job) -> str:
    """Jobs that would run in the next round without the change, and not with it."""
    losers = before.running - after.running
    if not losers:
        return "no other job would be stopped or start later in that round"
    known = names_of(sorted(losers)[:MOST_NAMED])
    mine = sorted(one.name for one in known.values() if one.team_id == job.team_id)
    others = Counter(one.team for one in known.values() if one.team_id != job.team_id)
    named = mine + [f"{count} job{'s' * (count > 1)} of team {team}" for team, count in others.items()]
    more = f" and {len(losers) - MOST_NAMED} more" if len(losers) > MOST_NAMED else ""
    listed = f"{', '.join(named)}{more}" if more else _joined(named)
    return f"{listed} would wait for it"


def _joined(names: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def _sufficient_weight(what_if: WhatIf, most: float) -> float | None:
    """A weight of at most `most` with which the job starts, found by bisection."""
    less, enough = what_if.row.weight, most

    def starts(weight: float) -> bool:
        return what_if.planned(what_if.row._replace(weight=weight)).gpus > 0

    if enough <= less or not starts(enough):
        return None
    for _ in range(HALVINGS):
        between = float(f"{sqrt(less * enough):.2g}")
        if not less < between < enough:
            break
        less, enough = (less, between) if starts(between) else (between, enough)
    return enough
