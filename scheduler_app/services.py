"""One round: observe, take a snapshot, decide, commit, dispatch. The loop and Celery both call `tick`."""

import gc
import logging
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from time import perf_counter
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Max
from django.utils import timezone

from allocation.decision import Decision
from allocation.planning import Plan, plan_round
from allocation.rounds import reset_due
from allocation.solve import Status
from audit_app.models import Action
from audit_app.services import note
from cluster_app.feasibility import inventory
from cluster_app.models import NodeEvent
from jobs_app.models import JobEvent, Metric
from jobs_app.tallying import Count, tally, total_up
from scheduler_app.archive import Archived, pack, same_plan, unpack
from scheduler_app.bids import Timing
from scheduler_app.choosing import checked, in_full, policy_of, words_of
from scheduler_app.committing import commit_round, tell_waiting
from scheduler_app.dispatching import dispatch
from scheduler_app.errors import LeaseLost, NotReplayable
from scheduler_app.explaining import reasons_of, rivals_in, words_of_left_out, words_of_round
from scheduler_app.finish_times import rhos_between
from scheduler_app.lease import hold_lease, lease_kept, open_round
from scheduler_app.logwords import about_round
from scheduler_app.models import PolicySetting, Round
from scheduler_app.naming import names_of
from scheduler_app.observing import observe
from scheduler_app.pruning import prune_when_due
from scheduler_app.reading import Rows, busy_in_arrays, read_rows
from scheduler_app.snapshot import LeftOut, Snapshot, build_snapshot

log = logging.getLogger(__name__)

DEBOUNCE = timedelta(seconds=1)
"""News is answered by a round of its own, but not faster than this: a burst of submissions is one round."""


def tick(holder: str, now: datetime) -> bool:
    """Do what is due. False: another scheduler is at work. Safe to call at any time, any number of times."""
    if not hold_lease(holder, now):
        return False
    try:
        with lease_kept(holder, now), nothing_collected():
            observe(now)
            if round_is_due(now):
                run_round(holder, now)
            dispatch(now)
            prune_when_due(now)
    except LeaseLost as error:
        log.warning("%s", error)
        return False
    return True


def round_is_due(now: datetime) -> bool:
    """Every round length; sooner when something happened since the last round."""
    last = Round.objects.defer("archive").first()
    if last is None:
        return True
    since, length = now - last.started_at, timedelta(seconds=PolicySetting.objects.current().round_length_s)
    if not timedelta() <= since < length:  # nor is a clock that was set back waited for
        return True
    return since >= DEBOUNCE and newest_events() > (last.last_job_event, last.last_node_event)


def newest_events() -> tuple[int, int]:
    """The last event of jobs and the last of nodes that a scheduler must answer."""
    waking = JobEvent.objects.filter(kind__in=JobEvent.WAKING)
    jobs, nodes = (events.aggregate(Max("pk"))["pk__max"] or 0 for events in (waking, NodeEvent.objects.all()))
    return jobs, nodes


def run_round(holder: str, now: datetime) -> Round:
    """Decide once and write it down; a failure is written down too, and the next round tries again.

    `LeaseLost` if another scheduler took over: then nothing was written.
    """
    opening = Opening(open_round(holder, now), now, *newest_events())
    clock = Stopwatch()
    with about_round(opening.number):
        try:
            return _decide_and_commit(holder, opening, clock)
        except LeaseLost:
            raise
        except Exception as error:  # whatever a policy or a solver does, running jobs go on and the next round comes
            log.exception("the round failed")
            return _record_failure(opening, error, clock)


@dataclass(frozen=True)
class Opening:
    """A round that was opened: its number, when, and the last events before its snapshot."""

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
            parameters=in_full(setting.policy, setting.parameters),
            shares_since=shares_since,
            last_job_event=self.job_event,
            last_node_event=self.node_event,
        )


def _decide_and_commit(holder: str, opening: Opening, clock: "Stopwatch") -> Round:
    setting = PolicySetting.objects.current()
    with clock.step("snapshot"):
        snapshot, left_out, rows, shares_since = take_snapshot(opening.now, setting)
    with clock.step("decide"):
        plan = decide(snapshot, setting.policy, setting.parameters)
    record = opening.record(Round.Result.COMMITTED, setting=setting, shares_since=shares_since)
    with ThreadPoolExecutor(1) as beside:  # compressing leaves the interpreter to others
        archive = beside.submit(pack, record.policy, record.parameters, snapshot, plan)
        with clock.step("explain"):
            reasons = _reasons(snapshot, plan, left_out, rows)
        with clock.step("archive"):
            _fill(record, snapshot, plan)
            record.archive = archive.result()
    with clock.step("commit"):
        commit_round(record, snapshot, plan, holder=holder, now=opening.now)
    with clock.step("tell"):
        tell_waiting(reasons)
    record.seconds = clock.seconds
    _account(record, opening)
    level = logging.INFO if record.starts or record.stops or record.moves else logging.DEBUG
    log.log(level, "%s jobs: %s start, %s stop, %s move", record.jobs, record.starts, record.stops, record.moves)
    return record


@transaction.atomic
def _account(record: Round, opening: Opening) -> None:
    """What the round took, for who opens it and for metrics; and what was counted since the last one is added up."""
    record.save(update_fields=["seconds"])
    before = Round.objects.filter(result=Round.Result.COMMITTED, number__lt=record.number)
    rhos = rhos_between(before.values_list("last_job_event", flat=True).first() or 0, opening.job_event)
    total_up(
        Count(Metric.ROUNDS, record.outcome),
        Count(Metric.ROUND_TIME, value=sum(record.seconds.values())),
        Count(Metric.SOLVER_TIME, value=record.seconds["decide"]),
        *(Count(Metric.FINISH_TIME_FAIRNESS, value=value) for value in rhos),
    )


def take_snapshot(now: datetime, setting: PolicySetting) -> tuple[Snapshot, LeftOut, Rows, datetime]:
    """The cluster and the queue as arrays; also what they were made from, and since when time received counts."""
    rows, timing = read_for_round(now, setting)
    snapshot, left_out = build_snapshot(rows, timing, busy_in_arrays())
    return snapshot, left_out, rows, timing.shares_since


def read_for_round(now: datetime, setting: PolicySetting, *, changed: bool = False) -> tuple[Rows, Timing]:
    """What a round at this moment is decided from; `changed`: as if a job had been changed just now."""
    shares_since = _shares_since(now, setting, changed=changed)
    timing = Timing(now, setting.round_length_s, setting.min_run_s, shares_since, setting.solve_limit_s)
    return read_rows(shares_since), timing


def decide(snapshot: Snapshot, policy: str, parameters: Mapping[str, Any]) -> Plan:
    """Who runs where. Pure: the same snapshot gives the same plan."""
    decider = policy_of(policy, parameters)
    return plan_round(snapshot.problem, snapshot.floor, snapshot.limits, decider, round_s=snapshot.round_s)


def replay_round(number: int) -> tuple[Archived, Plan, bool]:
    """A past round, solved again: what was decided, what is decided now, and whether they are equal.

    It has the time limit again only if it ran into it: on a busier machine it is still the same round.
    """
    archive = Round.objects.filter(pk=number).values_list("archive", flat=True).first()
    if archive is None:
        raise NotReplayable(f"Round {number} keeps no snapshot: it failed, was dropped, or never was.")
    archived = unpack(bytes(archive))
    limited = archived.plan.decision.status == Status.LIMIT
    snapshot = archived.snapshot if limited else archived.snapshot.without_limit()
    again = decide(snapshot, archived.policy, archived.parameters)
    return archived, again, same_plan(archived.plan, again)


@transaction.atomic
def choose_policy(setting: PolicySetting, *, actor: User | None) -> PolicySetting:
    """From now on decide so; `InvalidChoice` with every fault. The old setting stays as history."""
    setting.parameters = checked(setting.policy, setting.parameters)
    said = "; ".join(filter(None, (words_of(setting.parameters), setting.note)))
    setting.pk, setting.created_by, setting.created_at = None, actor, timezone.now()
    setting.save(force_insert=True)
    note(Action.POLICY_CHOOSE, actor=actor, target=setting.policy, target_id=setting.pk, message=said)
    return setting


def choose_again(setting: PolicySetting, *, actor: User | None) -> PolicySetting:
    """Go back to a setting of the past: undo what came after. `InvalidChoice` if the code knows it no more."""
    setting.note = f"back to the setting of {setting.created_at:%F %H:%M}"
    return choose_policy(setting, actor=actor)


def _shares_since(now: datetime, setting: PolicySetting, *, changed: bool) -> datetime:
    """Time received counts anew when jobs, nodes or the policy changed, but not so often that nothing is received."""
    last = Round.objects.filter(result=Round.Result.COMMITTED).defer("archive").first()
    if last is None:
        return now
    chosen, decided = (setting.policy, in_full(setting.policy, setting.parameters)), (last.policy, last.parameters)
    changed = changed or newest_events() > (last.last_job_event, last.last_node_event) or chosen != decided
    since_s = (now - last.shares_since).total_seconds()
    return now if reset_due(changed=changed, since_s=since_s, round_s=setting.round_length_s) else last.shares_since


def _reasons(snapshot: Snapshot, plan: Plan, left_out: LeftOut, rows: Rows) -> dict[str, list[dict[str, Any]]]:
    words = words_of_left_out(left_out, rows.waiting_for, inventory() if left_out.cannot_run else [])
    left = reasons_of(snapshot, plan)
    return words | words_of_round(snapshot, left, names_of(rivals_in(snapshot, left)))


def _fill(record: Round, snapshot: Snapshot, plan: Plan) -> None:
    """What pages show of the decision."""
    decision = plan.decision
    record.jobs, record.gpus = len(snapshot.jobs), len(snapshot.gpus)
    record.objective, record.bound, record.gap = decision.objective, decision.bound, decision.gap
    record.status, record.message = decision.status.value, _message_of(decision)[:500]
    record.prices = dict(zip(snapshot.types, (float(price) for price in decision.prices), strict=True))


def _message_of(decision: Decision) -> str:
    """What went wrong; some policies have a stand-in of their own, which says only how far it is from the best."""
    if decision.status == Status.LIMIT:
        return f"The best certified answer at the time limit counts, which may be {decision.gap:.2%} off the best."
    if decision.status != Status.FALLBACK or decision.message:
        return decision.message
    return f"The solver ran out of time; the best answer until then counts, which may be {decision.gap:.1%} off."


def _record_failure(opening: Opening, error: Exception, clock: "Stopwatch") -> Round:
    setting = PolicySetting.objects.current()
    record = opening.record(Round.Result.FAILED, setting=setting, shares_since=opening.now)
    record.message, record.seconds = f"{type(error).__name__}: {error}"[:500], clock.seconds
    with transaction.atomic():
        record.save(force_insert=True)
        tally(Count(Metric.ROUNDS, record.result))
    return record


@contextmanager
def nothing_collected() -> Iterator[None]:
    """Half a million objects live to the end of a round: looking for garbage among them took a quarter of it."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


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
