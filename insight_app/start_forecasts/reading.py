"""Input of a run of forecasts: a round's snapshot with sampled arrivals appended, and distributions of the unknowns.

Samples are the newest jobs of the last two weeks, as fresh copies in the queue: futures draw their arrivals from them.
"""

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import NamedTuple
from uuid import UUID, uuid4

import numpy as np

from accounting_app.durations.boosted_model import read_model
from accounting_app.durations.duration_history import read_ended_jobs
from accounting_app.fairness.budgets import TeamBudget, used_up
from allocation.policies import REGISTRY
from allocation.problem import Problem
from estimation.types import Bools, Floats
from forecast.draws import Unknowns
from forecast.future import HORIZON_S
from forecast.present import Present, Rounds
from insight_app.start_forecasts.lengths import left_by_others
from insight_app.start_forecasts.nodes import in_service_again, read_boots, read_coming_back, up_from_s
from insight_app.start_forecasts.queue import (
    MOST_JOBS,
    Needs,
    front_of_queue,
    never_free,
    read_needs,
    startable,
    waits_of,
    with_dependents,
)
from jobs_app.models import Job
from scheduler_app.models import PolicySetting
from scheduler_app.policy.settings import policy_function
from scheduler_app.round.closed_nodes import stays_of, windows_of
from scheduler_app.round.inputs import InputRows, JobRow, NodeRow, read_job_rows, read_measured
from scheduler_app.round.job_options import Timing
from scheduler_app.round.node_lifetimes import KnownLifetime, known_lifetimes
from scheduler_app.round.run_round import ids_set_aside, read_for_round
from scheduler_app.round.snapshot import Snapshot, build_snapshot, rate_spreads, seconds_worked
from scheduler_app.windows.reading import read_windows

log = logging.getLogger(__name__)

HORIZON = timedelta(seconds=HORIZON_S)
SAMPLED = timedelta(days=14)
MOST_SAMPLES = 2_000


class Sample(NamedTuple):
    """A job that was submitted in the last weeks: its copy in the queue, and its outcome."""

    row: JobRow
    job: UUID
    """The job itself."""
    arrived_at: datetime
    """By its submission, or its begin time."""
    took_gpu_s: float | None
    """GPU-seconds that it received; None: it has not ended."""


class History(NamedTuple):
    """Samples: all jobs that were submitted in the last `known_s` seconds, of `history_s` since the first of all."""

    samples: Sequence[Sample]
    known_s: float
    history_s: float


@dataclass(frozen=True, eq=False)
class ForecastInput:
    """Input of the simulation, and the m jobs of its first rows."""

    present: Present
    unknowns: Unknowns
    rounds: Rounds
    jobs: Sequence[JobRow]
    types: Sequence[str]
    """Names of the GPU types."""
    left_out: int = 0
    """Jobs of the queue behind those that are played."""
    startable: frozenset[UUID] = frozenset()
    """Waiting jobs that would start on free GPUs, those behind included."""

    @property
    def runs(self) -> Bools:
        """Jobs (m,) that hold GPUs."""
        holds: Bools = self.present.problem.held[: len(self.jobs)] >= 0
        return holds


def read_forecast_input(
    now: datetime, *, also: Sequence[JobRow] = (), needs: Needs = MappingProxyType({})
) -> ForecastInput:
    """Read the queue as a round would now with jobs that wait for others, and samples of arrivals.

    also: jobs that are not there yet, as the last of the queue; needs: unfinished jobs that these wait for.
    """
    setting = PolicySetting.objects.current()
    rows, timing = read_for_round(now, setting, begin_by=now + HORIZON)
    unmet, registered = read_needs(), REGISTRY[setting.policy]
    every = with_dependents(rows, unmet)
    front = front_of_queue(every, MOST_JOBS, strict=registered.strict_queue)
    boots = read_boots(now)
    windows, nodes = read_windows(now, HORIZON), in_service_again(rows.nodes, read_coming_back(), boots)
    up_from = up_from_s(rows.nodes, boots)
    rows, needs = replace(rows, jobs=[*front, *also], windows=windows, nodes=nodes), {**unmet, **needs}
    aside = ids_set_aside(rows, now)
    pinned = frozenset(attempt.id for attempt in rows.attempts.values() if attempt.job_id in aside)
    history = read_history(now, rows.nodes, without=aside)
    snapshot, history = _snapshot(rows.without(aside), needs, history, timing, pinned)
    policy = policy_function(setting.policy, setting.parameters)
    times = setting.round_length_s, setting.min_run_s
    rounds = Rounds(policy, *times, strict=registered.strict_queue, settled=registered.settled)
    lifetimes = known_lifetimes(snapshot.nodes, now)
    asked = forecast_input(snapshot, rows, history, rounds, needs=needs, ran_s=_ran_s(), nodes=lifetimes, now=now)
    unknowns = replace(asked.unknowns, up_from_s=up_from)
    able = startable([*every, *also], needs, now)
    return replace(asked, unknowns=unknowns, left_out=len(every) - len(front), startable=able)


def read_history(now: datetime, nodes: Sequence[NodeRow], *, without: Collection[UUID]) -> History:
    """The newest jobs of the last two weeks, in the order of submission, but for some."""
    newest = Job.objects.filter(created_at__gt=now - SAMPLED, created_at__lte=now).order_by("-pk")
    submitted = dict(newest.values_list("pk", "created_at")[:MOST_SAMPLES])
    pks = submitted.keys() - without
    ended = set(Job.objects.filter(pk__in=pks, state__in=Job.FINAL).values_list("pk", flat=True))
    rows = read_job_rows(Job.objects.filter(pk__in=pks), nodes, {})
    first = Job.objects.order_by("created_at").values_list("created_at", flat=True).first() or now
    since = min(submitted.values()) if len(submitted) == MOST_SAMPLES else max(first, now - SAMPLED)
    samples = [_sample(row, now, ended=row.id in ended) for row in rows if row.arrived_at <= now]
    return History(samples, known_s=(now - since).total_seconds(), history_s=(now - first).total_seconds())


def _snapshot(
    rows: InputRows,
    needs: Needs,
    history: History,
    timing: Timing,
    pinned: frozenset[int],
) -> tuple[Snapshot, History]:
    """The snapshot with the samples behind; without them, and nothing arrives, where one of them makes it fail.

    Jobs that wait for one that is not in it are left out.
    """
    try:
        snapshot = build_snapshot(_with_samples(rows, history.samples), timing, pinned=pinned)[0]
    except Exception:
        log.exception("jobs are forecast without arrivals")
        history = history._replace(samples=[])
        snapshot = build_snapshot(_with_samples(rows, ()), timing, pinned=pinned)[0]
    stuck = never_free({UUID(key) for key in snapshot.jobs}, needs)
    return _snapshot(rows.without(stuck), needs, history, timing, pinned) if stuck else (snapshot, history)


def _sample(row: JobRow, now: datetime, *, ended: bool) -> Sample:
    fresh = row._replace(
        id=uuid4(),
        state=Job.State.QUEUED,
        array_id=None,
        at_a_time=None,
        array_tasks=None,
        step=0,
        begin_time=None,
        deadline=None,
        created_at=now,
        attained_gpu_s=0.0,
        ran_s=0.0,
        work_lost_gpu_s=0.0,
        attempt_count=0,
    )
    return Sample(fresh, row.id, row.arrived_at, row.attained_gpu_s if ended else None)


def _with_samples(rows: InputRows, samples: Sequence[Sample]) -> InputRows:
    """The rows of a round with the samples behind its jobs, and what is measured of their workloads."""
    unlimited = (job._replace(at_a_time=None) for job in rows.jobs)  # futures keep to the limits of arrays
    jobs = [*unlimited, *(sample.row for sample in samples)]
    estimated = any(job.steps_in_all is None for job in jobs)
    return replace(
        rows,
        jobs=jobs,
        measured=read_measured(jobs),
        ended=read_ended_jobs() if estimated else [],
        duration_model=read_model() if estimated else None,
    )


def _ran_s() -> dict[UUID, float]:
    """Seconds that the ended attempts of each unfinished job with a time limit ran."""
    return dict(Job.objects.unfinished().filter(time_limit_s__isnull=False).values_list("pk", "ran_s"))


# -- what is played: pure ------------------------------------------------------------------------------------------


def forecast_input(
    snapshot: Snapshot,
    rows: InputRows,
    history: History,
    rounds: Rounds,
    *,
    needs: Needs,
    ran_s: dict[UUID, float],
    nodes: Mapping[str, KnownLifetime],
    now: datetime,
) -> ForecastInput:
    """The present and its unknowns, from a snapshot whose last rows are those samples that can run."""
    there, sampled = {job.id: job for job in rows.jobs}, {sample.row.id: sample for sample in history.samples}
    ids = [UUID(key) for key in snapshot.jobs]
    able = [sampled[key] for key in ids if key in sampled]
    jobs = [there[key] for key in ids if key in there]
    every = [*jobs, *(sample.row for sample in able)]
    present = Present(
        problem=snapshot.problem,
        inventory=snapshot.inventory,
        quotas=snapshot.quotas,
        jobs=len(jobs),
        team_weight=np.array([rows.teams[job.team_id].weight for job in every], dtype=float),
        limit_s=_limits_s(every, snapshot.problem, ran_s),
        preemptible=np.array([job.preemptible for job in every], dtype=np.bool_),
        waits=waits_of(jobs, needs),
        windows=windows_of(rows.windows, rows.nodes, now) if rows.windows else None,
        stays=stays_of(snapshot, every, rounds.min_run_s, rows.checkpoint_s) if rows.windows else None,
    )
    budgets = used_up(rows.budgets)
    unknowns = _unknowns(snapshot, jobs, history._replace(samples=able), nodes, budgets=budgets, now=now)
    left = left_by_others(
        every,
        snapshot.durations,
        rows.ended,
        jobs=len(jobs),
        base_gpus=snapshot.problem.base_gpus,
        done_s=unknowns.done_s,
    )
    unknowns = replace(unknowns, left_by_others=left)
    return ForecastInput(present, unknowns, rounds, jobs, snapshot.types)


def _limits_s(jobs: Sequence[JobRow], problem: Problem, ran_s: dict[UUID, float]) -> Floats:
    """Seconds (M,) for which each may still run by its time limit; inf: it has none."""
    limits = [np.inf if job.time_limit_s is None else job.time_limit_s - ran_s.get(job.id, 0.0) for job in jobs]
    left_s: Floats = np.maximum(np.array(limits, dtype=float) - problem.held_s, 0.0)
    return left_s


def _unknowns(
    snapshot: Snapshot,
    jobs: Sequence[JobRow],
    history: History,
    nodes: Mapping[str, KnownLifetime],
    *,
    budgets: Mapping[int, TeamBudget],
    now: datetime,
) -> Unknowns:
    """The unknowns of the rows; `budgets`: those that are used up."""
    problem, samples = snapshot.problem, history.samples
    every = [*jobs, *(sample.row for sample in samples)]
    done_s = seconds_worked(
        every, problem.rate, problem.held, problem.held_s, base_gpus=problem.base_gpus, base_rate=problem.base_rate
    )
    done_of = {job.id: seconds for job, seconds in zip(jobs, done_s.tolist(), strict=False)}
    done_s[len(jobs) :] = [done_of.get(sample.job, 0.0) for sample in samples]
    submitted_s = [(sample.arrived_at - now).total_seconds() for sample in samples]
    return Unknowns(
        left=_left(problem, every, samples),
        duration=[found.estimate if found else None for found in snapshot.durations],
        done_s=done_s,
        rate_spread=rate_spreads(snapshot),
        begin_s=np.array([_seconds_to(job.begin_time, now) for job in jobs], dtype=float),
        not_before_s=np.array([_seconds_to_reset(job, budgets, now) for job in every], dtype=float),
        submitted_s=np.array(submitted_s, dtype=float),
        known_s=history.known_s,
        history_s=history.history_s,
        lifetimes=[nodes[name].lifetime for name in snapshot.nodes],
    )


def _seconds_to(begin_time: datetime | None, now: datetime) -> float:
    return max((begin_time - now).total_seconds(), 0.0) if begin_time else 0.0


def _seconds_to_reset(job: JobRow, budgets: Mapping[int, TeamBudget], now: datetime) -> float:
    """Until jobs of its team start again; 0: its budget lasts, or it has started."""
    waits = job.state == Job.State.QUEUED and job.team_id in budgets
    return _seconds_to(budgets[job.team_id].resets_at, now) if waits else 0.0


def _left(problem: Problem, every: Sequence[JobRow], samples: Sequence[Sample]) -> Floats:
    """Steps (M,) that are left of each row: those that it declares, those that a sample took; nan: not known."""
    told = np.array([job.steps_in_all is not None for job in every], dtype=np.bool_)
    left: Floats = np.where(told, problem.remaining_steps, np.nan)
    first = len(every) - len(samples)
    for row, sample in enumerate(samples, start=first):
        if sample.took_gpu_s is not None:
            left[row] = sample.took_gpu_s / problem.base_gpus[row] * problem.base_rate[row]
    return left
