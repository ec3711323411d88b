"""Profiling in a round: a job that starts anyway starts in the configuration whose rate is most worth measuring.

A cell is a GPU type, GPUs and nodes. Of the jobs that the plan starts, one at most is moved to the cell whose
measurement gains the choice of its workload's GPU type most (`estimation.profiling`): a cell on which GPUs would idle.
The round is planned again with that cell alone for it, and the new plan is used only if every other job has in it what
it has in the first.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import islice
from typing import NamedTuple

import numpy as np
from django.db.models.functions import Coalesce

from allocation.plan_round import Plan
from allocation.problem import Problem
from allocation.types import Bools, Floats, Ints
from estimation.completion import Cells, RateFactors, prior_factors
from estimation.profile import Measured
from estimation.profiling import MEASUREMENT_S, ProbeBudget, choose_cell
from estimation.rates import Machines
from jobs_app.models import Attempt
from scheduler_app.round.inputs import InputRows, JobRow
from scheduler_app.round.job_options import gpu_specs, knowledge_of
from scheduler_app.round.known_workloads import rate_factors
from scheduler_app.round.snapshot import Snapshot

WINDOW = timedelta(days=1)
"""Measurements of so long ago count no more: neither against the budget nor as tried."""
GPU_TIME_PART = 0.01
"""Part of the cluster's GPU time in the window that measurements may take."""
MOST_CANDIDATES = 50
"""Workloads that a round looks at; the choice for one takes a millisecond."""
Workload = tuple[int, str]
"""Team and name."""


class Trial(NamedTuple):
    """An attempt that was placed to measure its rate."""

    team_id: int
    workload: str
    gpu_type_id: int
    gpus: int
    ended: bool


@dataclass(frozen=True)
class Trials:
    """Measurements of the last day, and the GPU-seconds that they took."""

    listed: tuple[Trial, ...] = ()
    gpu_s: float = 0.0

    def of(self, workload: Workload) -> list[Trial]:
        return [one for one in self.listed if (one.team_id, one.workload) == workload]


@dataclass(frozen=True)
class Measurement:
    """A row of the snapshot that starts on a configuration to measure it."""

    row: int
    configuration: int


@dataclass(frozen=True)
class Measuring:
    """A plan with the snapshot that it follows from, and the rows that it starts to measure their rates."""

    snapshot: Snapshot
    plan: Plan
    rows: frozenset[int] = field(default_factory=frozenset)


def read_trials(now: datetime) -> Trials:
    """Measurements of the last day, in one query."""
    recent = Attempt.objects.filter(measures=True, claimed_at__gt=now - WINDOW)
    columns = (
        "job__team_id",
        "job__workload",
        "gpu_type_id",
        "gpu_count",
        "ended_at",
        Coalesce("started_at", "claimed_at"),
    )
    rows = list(recent.order_by("pk").values_list(*columns))
    listed = tuple(Trial(team, name, kind, gpus, end is not None) for team, name, kind, gpus, end, _ in rows)
    took = (gpus * min(((end or now) - start).total_seconds(), MEASUREMENT_S) for *_, gpus, end, start in rows)
    return Trials(listed, sum(took))


def with_measurement(
    rows: InputRows, snapshot: Snapshot, plan: Plan, trials: Trials, decide: Callable[[Snapshot], Plan]
) -> Measuring:
    """The plan with at most one measurement, and with none if it would change the GPUs of another job."""
    wanted = next(measurements(rows, snapshot, plan, trials), None)
    if wanted is None:
        return Measuring(snapshot, plan)
    narrowed = replace(snapshot, problem=_with_one_choice(snapshot.problem, wanted))
    again = decide(narrowed)
    if not _is_only_change(snapshot, plan, again, wanted):
        return Measuring(snapshot, plan)
    return Measuring(narrowed, again, frozenset({wanted.row}))


def _with_one_choice(problem: Problem, wanted: Measurement) -> Problem:
    """The problem in which the job has the configuration to be measured and no other."""
    rate = problem.rate.copy()
    rate[wanted.row, np.arange(rate.shape[1]) != wanted.configuration] = 0
    return replace(problem, rate=rate)


def _is_only_change(snapshot: Snapshot, before: Plan, after: Plan, wanted: Measurement) -> bool:
    """Whether the measurement starts, no running job moves, and no job that was to start has other GPUs or none.

    Further jobs may start.
    """
    others = before.assignment >= 0
    others[wanted.row] = False
    stays = (before.owner >= 0) & (before.owner == snapshot.inventory.holder)
    measures = after.assignment[wanted.row] == wanted.configuration
    alike = np.array_equal(after.assignment[others], before.assignment[others])
    return bool(measures and alike and np.array_equal(after.owner[stays], before.owner[stays]))


def starts_any(snapshot: Snapshot, plan: Plan) -> bool:
    """Whether the plan starts a job that holds no GPUs, and leaves a GPU idle."""
    return bool((plan.owner < 0).any() and len(_starting(snapshot, plan)))


def _starting(snapshot: Snapshot, plan: Plan) -> list[int]:
    waited = np.array(snapshot.attempts, dtype=np.int64) == 0
    starting: list[int] = np.flatnonzero((plan.assignment >= 0) & waited).tolist()
    return starting


def measurements(rows: InputRows, snapshot: Snapshot, plan: Plan, trials: Trials) -> Iterator[Measurement]:
    """Measurements that are worth a start, in the order of the queue, of the jobs that the plan starts."""
    candidates = _candidates(rows, snapshot, plan, trials)
    if not candidates:
        return
    specs = gpu_specs(rows.types)
    machines = Machines(specs, snapshot.problem.usage, snapshot.problem.nodes)
    factors = rate_factors(rows.known_rates, [kind.id for kind in rows.types], specs) or prior_factors(machines.speed)
    budget = ProbeBudget(gpu_s=GPU_TIME_PART * len(snapshot.gpus) * WINDOW.total_seconds() - trials.gpu_s)
    possible = _idle_on_real_gpus(rows, snapshot, plan)
    known, of_job = knowledge_of(rows, list(candidates.values()))
    for (row, job), workload in zip(candidates.items(), of_job.tolist(), strict=True):
        measured = known[workload].measured
        if measured.usable:  # of a program that reports nothing nothing can be measured
            tried = _tried(rows, trials.of((job.team_id, job.workload)))
            beliefs = _Beliefs(snapshot.problem, factors, measured, tried, budget)
            found = beliefs.cell_for(row, int(plan.assignment[row]), possible)
            if found is not None:
                yield Measurement(row, found)


def _candidates(rows: InputRows, snapshot: Snapshot, plan: Plan, trials: Trials) -> dict[int, JobRow]:
    """Row → job, of the first job that starts of each workload that is not being measured."""
    busy = {(one.team_id, one.workload) for one in trials.listed if not one.ended}
    jobs = {str(job.id): job for job in rows.jobs}
    first: dict[Workload, int] = {}
    for row in _starting(snapshot, plan):
        job = jobs[snapshot.jobs[row]]
        if _may_measure(job) and (job.team_id, job.workload) not in busy:
            first.setdefault((job.team_id, job.workload), row)
    return {row: jobs[snapshot.jobs[row]] for row in islice(first.values(), MOST_CANDIDATES)}


def _may_measure(job: JobRow) -> bool:
    """Whether it can leave the configuration again at little cost, and its rate depends on that alone."""
    may_leave = job.preemptible and job.deadline is None and job.restart_s < MEASUREMENT_S
    return may_leave and not (job.gpus_per_replica.several or job.batch_size or job.uneven_gang)


def _idle_on_real_gpus(rows: InputRows, snapshot: Snapshot, plan: Plan) -> Bools:
    """The configurations (K,) whose GPUs would idle, without emulated ones, whose rate is set and not measured."""
    emulated = {node.gpu_type_id for node in rows.nodes if node.emulated}
    idle = np.bincount(snapshot.inventory.gpu_type[plan.owner < 0], minlength=len(rows.types))
    real = np.array([0 if kind.id in emulated else count for kind, count in zip(rows.types, idle, strict=True)])
    return np.asarray((snapshot.problem.usage <= real[:, None]).all(axis=0))


def _tried(rows: InputRows, trials: list[Trial]) -> set[tuple[int, int]]:
    """GPU type, by its place among the rows, and GPUs of each trial."""
    index = {kind.id: j for j, kind in enumerate(rows.types)}
    return {(index[one.gpu_type_id], one.gpus) for one in trials if one.gpu_type_id in index}


@dataclass(frozen=True)
class _Beliefs:
    """Posterior of a workload's rates, and the budget for measurements."""

    problem: Problem
    factors: RateFactors
    measured: Measured
    tried: set[tuple[int, int]]
    budget: ProbeBudget

    def cell_for(self, row: int, planned: int, possible: Bools) -> int | None:
        """The configuration to measure instead of the planned one; None if no feasible one is better."""
        same_size = self.problem.gpus == self.problem.gpus[planned]
        choice = np.flatnonzero(same_size & (self.problem.rate[row] > 0))
        found = self._most_telling(choice)
        if found is None or found == planned or not possible[found] or self._was_tried(found):
            return None
        return found

    def _most_telling(self, choice: Ints) -> int | None:
        cells = self._cells(choice)
        known = self.measured.usable
        rates: Floats = np.array(list(known.values()))
        beliefs = self.factors.beliefs(Cells.of(list(known)), rates, cells)
        types = {gpu_type for gpu_type, _ in self.tried}
        alike = np.ones(len(choice))
        found = choose_cell(beliefs, cells, [np.arange(len(choice))], alike, budget=self.budget, types_tried=types)
        return None if found is None else int(choice[found])

    def _cells(self, choice: Ints) -> Cells:
        gpu_type = self.problem.usage[:, choice].argmax(axis=0)
        return Cells(gpu_type, self.problem.gpus[choice], self.problem.nodes[choice])

    def _was_tried(self, k: int) -> bool:
        return (int(self.problem.usage[:, k].argmax()), int(self.problem.gpus[k])) in self.tried
