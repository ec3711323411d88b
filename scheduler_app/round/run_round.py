"""One round: take a snapshot, decide, commit, store pending reasons, record the result."""

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import count
from time import perf_counter
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import DatabaseError, transaction
from structlog.contextvars import bound_contextvars

from accounting_app.durations.duration_history import request_of
from accounting_app.durations.forecast_store import MadeForecast, close_forecasts, record_forecasts
from accounting_app.energy.wake import wake_for_waiting_jobs
from allocation.decision import Decision, Status
from allocation.plan_round import MOMENT_S, Plan, plan_round
from allocation.policies import KEEP_RUNNING
from allocation.rounds.mechanism import reset_due
from allocation.time_budget import TimeBudget
from cluster_app.feasibility import inventory
from jobs_app.measurement.counters import Count, tally, total_up
from jobs_app.models import Metric
from scheduler_app.errors import LeaseLost, NotIsolated
from scheduler_app.finish_time import rhos_between
from scheduler_app.models import PolicySetting, Round, SetAside
from scheduler_app.models.round import AFTER_COMMIT
from scheduler_app.policy.settings import policy_function, with_defaults
from scheduler_app.round.archive import pack
from scheduler_app.round.checkpoint_times import renew_checkpoint_times
from scheduler_app.round.closed_nodes import close_nodes, window_reasons
from scheduler_app.round.commit import ReasonsByJob, changes_of, commit_round, store_pending_reasons
from scheduler_app.round.cpu_memory import AS_JOBS_ASKED, CpuMemoryShares, share_cpus_and_memory
from scheduler_app.round.inputs import InputRows, newest_events, read_input_rows
from scheduler_app.round.inputs.cpu_curves import read_cpu_curves
from scheduler_app.round.job_options import Timing
from scheduler_app.round.lease import open_round
from scheduler_app.round.measuring import Measuring, read_trials, starts_any, with_measurement
from scheduler_app.round.quotas import quota_uses
from scheduler_app.round.reason_texts import (
    joined_reasons,
    names_of,
    reason_texts,
    reason_texts_of_begin_times,
    reason_texts_of_budgets,
    reason_texts_of_left_out,
    reasons_of,
    rivals_named,
)
from scheduler_app.round.set_aside import OF_NO_ITEM, Kind, error_text, isolate, set_aside, set_aside_at
from scheduler_app.round.snapshot import LeftOut, Snapshot, build_snapshot

log = logging.getLogger(__name__)
MOST_TRIALS = 100
"""Decisions on a part of the jobs, to find those over which a round failed."""


def run_round(holder: str, now: datetime) -> Round:
    """Run one round and record it; a failed round is recorded too, and the next round tries again.

    `LeaseLost` if another scheduler took over: then nothing was written.
    """
    opened = OpenedRound(open_round(holder, now), now, *newest_events())
    clock = Stopwatch()
    with bound_contextvars(round=opened.number):
        try:
            return _decide_and_commit(holder, opened, clock)
        except LeaseLost:
            raise
        except Exception as error:  # a failing policy or solver must stop neither running jobs nor the next round
            log.exception("the round failed")
            _set_culprits_aside(now)
            return _record_failure(opened, error, clock)


@dataclass(frozen=True)
class OpenedRound:
    """An opened round: its number (the fencing token), its time, and the newest events before its snapshot."""

    number: int
    now: datetime
    job_event: int
    node_event: int

    def record(self, result: Round.Result, *, setting: PolicySetting, shares_since: datetime) -> Round:
        return Round(
            number=self.number,
            started_at=self.now,
            result=result,
            policy=setting.policy,
            parameters=with_defaults(setting.policy, setting.parameters),
            shares_since=shares_since,
            last_job_event=self.job_event,
            last_node_event=self.node_event,
        )


def _decide_and_commit(holder: str, opened: OpenedRound, clock: "Stopwatch") -> Round:
    setting = PolicySetting.objects.current()
    with clock.step("snapshot"):
        snapshot, left_out, rows, shares_since = take_snapshot(opened.now, setting)
    with clock.step("decide"):
        measuring = decide_and_measure(setting, rows, snapshot, opened.now)
        snapshot, plan = measuring.snapshot, measuring.plan
        shares = cpu_memory_shares(rows, snapshot, plan)
    record = opened.record(Round.Result.COMMITTED, setting=setting, shares_since=shares_since)
    with ThreadPoolExecutor(1) as beside:  # compression releases the interpreter lock
        archive = beside.submit(pack, record.policy, record.parameters, snapshot, plan)
        with clock.step("explain"):
            reasons = _reasons(snapshot, plan, left_out, rows)
            reasons = window_reasons(reasons, snapshot, plan, left_out, rows=rows, now=opened.now)
            quotas = quota_uses(rows, snapshot.problem, snapshot.quotas.by_type)
        with clock.step("archive"):
            _fill(record, snapshot, plan)
            record.archive = archive.result()
    with clock.step("commit"):
        commit_round(
            record,
            snapshot,
            plan,
            holder=holder,
            now=opened.now,
            shares=shares,
            measuring=measuring.rows,
            quotas=quotas,
            requests={job.id: job for job in rows.jobs},
        )
    _record_forecasts(record, snapshot, plan, rows, clock)
    with _warning_on(record), clock.step("checkpoint times"):
        renew_checkpoint_times(record.number, opened.now)
    _follow_up(record, opened, reasons, clock)
    level = logging.INFO if record.starts or record.stops or record.moves else logging.DEBUG
    log.log(level, "%s jobs: %s started, %s stopped, %s moved", record.jobs, record.starts, record.stops, record.moves)
    return record


def _follow_up(record: Round, opened: OpenedRound, reasons: ReasonsByJob, clock: "Stopwatch") -> None:
    """Store reasons and figures after the commit; where that fails, the next round stores the reasons again."""
    with _warning_on(record):
        with clock.step("reasons"):
            store_pending_reasons(reasons)
            wake_for_waiting_jobs(opened.now)
        record.seconds = clock.seconds
        _account(record, opened)


def _record_forecasts(record: Round, snapshot: Snapshot, plan: Plan, rows: InputRows, clock: "Stopwatch") -> None:
    """Record the durations that were forecast, and compare those of jobs that have ended, after the commit."""
    with _warning_on(record), clock.step("forecasts"):
        record_forecasts(_forecasts(snapshot, plan, rows), rows.forecasts)
        close_forecasts({*rows.forecasts} - {job.id for job in rows.jobs})


def _forecasts(snapshot: Snapshot, plan: Plan, rows: InputRows) -> Iterator[MadeForecast]:
    jobs = {str(job.id): job for job in rows.jobs}
    placed, gpus = plan.assignment >= 0, snapshot.problem.base_gpus.astype(int).tolist()
    for row, duration in enumerate(snapshot.durations):
        job = jobs[snapshot.jobs[row]]
        before = job.attempt_count > 0
        starts = bool(placed[row]) and not before
        if starts or job.id not in rows.forecasts:
            whose = job.id, job.owner_id, job.team_id, job.array_id, job.name
            request = (gpus[row], request_of(job.gpu_types), job.time_limit_s)
            yield MadeForecast(*whose, *request, duration, before, starts)


@contextmanager
def _warning_on(record: Round) -> Iterator[None]:
    """An error after the commit is a warning on the round: it is committed and stays so."""
    try:
        yield
    except Exception as error:
        log.exception("the round is committed, but what follows it failed")
        record.message = f"{AFTER_COMMIT}{error_text(error)}"[:500]
        with suppress(DatabaseError):
            record.save(update_fields=["message"])


@transaction.atomic
def _account(record: Round, opened: OpenedRound) -> None:
    """Record the seconds of each step, and add the round's metrics and pending counts to the totals."""
    record.save(update_fields=["seconds"])
    before = Round.objects.committed().filter(number__lt=record.number)
    rhos = rhos_between(before.values_list("last_job_event", flat=True).first() or 0, opened.job_event)
    total_up(
        Count(Metric.ROUNDS, record.outcome),
        Count(Metric.ROUND_TIME, value=sum(record.seconds.values())),
        Count(Metric.SOLVER_TIME, value=record.seconds["decide"]),
        *(Count(Metric.FINISH_TIME_FAIRNESS, value=value) for value in rhos),
    )


def take_snapshot(now: datetime, setting: PolicySetting) -> tuple[Snapshot, LeftOut, InputRows, datetime]:
    """The snapshot, the jobs left out, the input rows, and the time from which time received counts."""
    rows, timing = read_for_round(now, setting)
    aside = _jobs_set_aside(rows, now)
    snapshot, left_out = snapshot_without(aside, rows, timing)
    return snapshot, replace(left_out, set_aside=aside), rows, timing.shares_since


def snapshot_without(aside: Collection[UUID], rows: InputRows, timing: Timing) -> tuple[Snapshot, LeftOut]:
    """The snapshot without these jobs, which keep their GPUs."""
    built = build_snapshot(rows.without(aside), timing, pinned=_attempts_of(rows, aside))
    return close_nodes(*built, rows, timing)


def _jobs_set_aside(rows: InputRows, now: datetime) -> dict[UUID, SetAside]:
    """The jobs that raised lately, and those whose columns cannot be read."""
    aside = set_aside_at(Kind.JOB, now)
    if fresh := {str(job): found.error for job, found in rows.unreadable.items() if str(job) not in aside}:
        set_aside(Kind.JOB, fresh, now)
        aside = set_aside_at(Kind.JOB, now)
    return {UUID(key): row for key, row in aside.items()}


def ids_set_aside(rows: InputRows, now: datetime) -> frozenset[UUID]:
    """Jobs that a round leaves out now: those that raised lately, and those whose columns cannot be read."""
    return frozenset(map(UUID, set_aside_at(Kind.JOB, now))) | rows.unreadable.keys()


def _attempts_of(rows: InputRows, jobs: Collection[UUID]) -> frozenset[int]:
    return frozenset(attempt.id for attempt in rows.attempts.values() if attempt.job_id in jobs)


def _set_culprits_aside(now: datetime) -> None:
    """Find the jobs over which the round failed, if it is single jobs, and leave them out for a while."""
    setting = PolicySetting.objects.current()
    rows, timing = read_for_round(now, setting)
    jobs, calls = {job.id: job for job in rows.jobs}, count()

    def plan(part: Sequence[UUID]) -> None:
        if next(calls) > MOST_TRIALS:
            raise NotIsolated("the round fails whichever jobs are left out")
        others = jobs.keys() - {*part}
        some = rows.without(others)
        built = build_snapshot(some, timing, pinned=_attempts_of(rows, others))
        snapshot, _ = close_nodes(*built, some, timing)
        cpu_memory_shares(some, snapshot, decide(snapshot, setting.policy, setting.parameters))

    with suppress(NotIsolated):
        set_aside(Kind.JOB, {str(job): error for job, error in isolate(list(jobs), plan).items()}, now)


def read_for_round(
    now: datetime, setting: PolicySetting, *, changed: bool = False, begin_by: datetime | None = None
) -> tuple[InputRows, Timing]:
    """The input rows and timing of a round now.

    `changed`: as if a job had just been changed; `begin_by`: with the jobs whose begin time comes until then.
    """
    timing = timing_for(now, setting, changed=changed)
    return with_cpu_curves(read_input_rows(timing.shares_since, now, begin_by=begin_by), setting), timing


def with_cpu_curves(rows: InputRows, setting: PolicySetting) -> InputRows:
    """The rows with what CPUs were measured to gain, where the setting has CPUs and memory tuned."""
    if setting.cpu_memory != PolicySetting.CpuMemory.TUNE:
        return rows
    undeclared = {(job.team_id, job.workload) for job in rows.jobs if job.sensitivity is None and not job.cpus_per_gpu}
    return replace(rows, cpu_curves=read_cpu_curves(undeclared))


def timing_for(now: datetime, setting: PolicySetting, *, changed: bool = False) -> Timing:
    """The timing of a round now under this setting."""
    shares_since = _shares_since(now, setting, changed=changed)
    return Timing(now, setting.round_length_s, setting.min_run_s, shares_since, setting.solve_limit_s)


def decide(snapshot: Snapshot, policy: str, parameters: Mapping[str, Any]) -> Plan:
    """Plan the round with the policy. Pure: the same snapshot gives the same plan."""
    function = policy_function(policy, parameters)
    return plan_round(snapshot.problem, snapshot.inventory, snapshot.quotas, function, round_s=snapshot.round_s)


def decide_and_measure(setting: PolicySetting, rows: InputRows, snapshot: Snapshot, now: datetime) -> Measuring:
    """Plan the round, with at most one job that starts in a configuration to measure its workload's rate.

    Both plans together have the time limit of the round. Nothing is measured where the job could not leave again.
    """
    budget = TimeBudget.of(snapshot.problem)

    def again(narrowed: Snapshot) -> Plan:
        left_s = max(budget.left_s(), MOMENT_S)
        limited = replace(narrowed, problem=replace(narrowed.problem, solve_limit_s=left_s))
        return decide(limited, setting.policy, setting.parameters)

    plan = decide(snapshot, setting.policy, setting.parameters)
    if not settings.MOTLEY_MEASURE_RATES or setting.policy in KEEP_RUNNING or not starts_any(snapshot, plan):
        return Measuring(snapshot, plan)
    try:
        return with_measurement(rows, snapshot, plan, read_trials(now), again)
    except OF_NO_ITEM:
        raise
    except Exception:  # nothing depends on a measurement, and the plan without it stands
        log.exception("no job measures its rate in this round")
        return Measuring(snapshot, plan)


def cpu_memory_shares(rows: InputRows, snapshot: Snapshot, plan: Plan) -> CpuMemoryShares:
    """CPUs and memory of attempts, where these are tuned; none else: jobs have what they ask for."""
    if rows.cpu_curves is None:
        return AS_JOBS_ASKED
    starting = {start.row for start in changes_of(snapshot, plan).starts}
    return share_cpus_and_memory(rows, snapshot, plan, starting=starting)


def _shares_since(now: datetime, setting: PolicySetting, *, changed: bool) -> datetime:
    """Start of the period in which time received counts: reset by changes, but not too often."""
    last = Round.objects.latest_committed()
    if last is None:
        return now
    chosen, decided = (
        (setting.policy, with_defaults(setting.policy, setting.parameters)),
        (last.policy, last.parameters),
    )
    changed = changed or newest_events() > (last.last_job_event, last.last_node_event) or chosen != decided
    since_s = (now - last.shares_since).total_seconds()
    turn_s = max(setting.round_length_s, setting.min_run_s)
    return now if reset_due(changed=changed, since_s=since_s, turn_s=turn_s) else last.shares_since


def _reasons(snapshot: Snapshot, plan: Plan, left_out: LeftOut, rows: InputRows) -> dict[str, list[dict[str, Any]]]:
    nodes = inventory() if left_out.cannot_run else []
    left = reasons_of(snapshot, plan)
    return joined_reasons(
        reason_texts_of_begin_times(rows.begin_times),
        reason_texts_of_budgets(rows.over_budget),
        reason_texts_of_left_out(left_out, rows.waiting_for, nodes, missing=rows.missing_storage),
        reason_texts(snapshot, left, names_of(rivals_named(snapshot, left))),
    )


def _fill(record: Round, snapshot: Snapshot, plan: Plan) -> None:
    """Fill in the columns that pages and REST show of the decision."""
    decision = plan.decision
    record.jobs, record.gpus = len(snapshot.jobs), len(snapshot.gpus)
    record.objective, record.bound, record.gap = decision.objective, decision.bound, decision.gap
    record.status, record.message = decision.status.value, _message_of(decision)[:500]
    record.prices = dict(zip(snapshot.types, (float(price) for price in decision.prices), strict=True))


def _message_of(decision: Decision) -> str:
    """Message on the solver: its own, or the optimality gap of a certified decision."""
    if decision.message:
        return decision.message
    if decision.status == Status.LIMIT:
        return f"The time limit was reached; the best answer, used here, is within {decision.gap:.2%} of the optimum."
    if decision.status != Status.FALLBACK:
        return ""
    return f"The solver ran out of time; its best answer, used here, is within {decision.gap:.1%} of the optimum."


def _record_failure(opened: OpenedRound, error: Exception, clock: "Stopwatch") -> Round:
    setting = PolicySetting.objects.current()
    record = opened.record(Round.Result.FAILED, setting=setting, shares_since=opened.now)
    record.message, record.seconds = f"{type(error).__name__}: {error}"[:500], clock.seconds
    with transaction.atomic():
        record.save(force_insert=True)
        tally(Count(Metric.ROUNDS, record.result))
    return record


class Stopwatch:
    """Seconds of each step of a round."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        start = perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = round(perf_counter() - start, 6)
