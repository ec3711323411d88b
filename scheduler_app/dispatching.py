"""Commands to the engines: stops first, then the attempts whose GPUs have come free. Every one may be repeated."""

import logging
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import TypeVar

from django.conf import settings
from django.db.models import Exists, OuterRef

from engines.protocol import Engine, EngineError, Launch, StopReason
from jobs_app.attempts import AttemptIsNotLive, end_attempt
from jobs_app.authentication import JobToken
from jobs_app.models import Attempt, Job
from scheduler_app.environment import Run, Seat, launch_of
from scheduler_app.fleet import engines
from scheduler_app.logwords import about
from scheduler_app.models import GpuClaim

log = logging.getLogger(__name__)
State = Attempt.State
Item = TypeVar("Item")

AT_ONCE = 100
"""So many commands are sent before it is written down; those that a crash leaves unwritten are sent again."""

ATTEMPT = ("number", "engine", "nodes", "gpu_count", "round_number", "master_port", "rate", "step_worth")
BATCH = ("batch_size", "micro_batches")
JOB = ("name", "command", "env", "workdir", "grace_s", "array_index", "team__name")
FOR_LAUNCHES = (*ATTEMPT, *BATCH, "gpu_type__name", *(f"job__{name}" for name in JOB))
"""What a command needs; most columns are for the round, or for people."""
SEAT = ("gpu__node__name", "gpu__index", "gpu__uuid", "gpu__node__emulated")

WORD = {
    Attempt.StopReason.PREEMPT: StopReason.PREEMPT,
    Attempt.StopReason.REQUEUE: StopReason.PREEMPT,
    Attempt.StopReason.CANCEL: StopReason.CANCEL,
    Attempt.StopReason.TIMEOUT: StopReason.TIMEOUT,
    Attempt.StopReason.DRAIN: StopReason.DRAIN,
}


def dispatch(now: datetime) -> None:
    """Tell the engines what the rows say that they have not been told."""
    running = engines()
    _send_stops(running, now)
    grant_claims(now)
    _claimed_to_launching()
    _send_launches(running, now)


def grant_claims(now: datetime) -> None:
    """Who waits for a GPU has it as soon as nobody else does."""
    holder = GpuClaim.objects.holding().filter(gpu=OuterRef("gpu"))
    GpuClaim.objects.waiting().filter(~Exists(holder)).update(held_from=now)


def _send_stops(running: dict[str, Engine], now: datetime) -> None:
    stops = Attempt.objects.filter(state=State.STOPPING, stop_told_at=None).order_by("pk")
    rows = stops.values_list("pk", "engine", "stop_reason", "job__grace_s")
    for batch in _batches(list(rows)):
        told: dict[str, list[int]] = defaultdict(list)
        for attempt, engine, reason, grace_s in batch:
            if _stop(running[engine], attempt, reason, grace_s):
                told[reason].append(attempt)
        for reason, attempts in told.items():  # whose reason has changed meanwhile is told again
            Attempt.objects.filter(pk__in=attempts, stop_reason=reason).update(stop_told_at=now)


def _batches(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    return (items[start : start + AT_ONCE] for start in range(0, len(items), AT_ONCE))


def _stop(engine: Engine, attempt: int, reason: str, grace_s: int) -> bool:
    try:
        engine.stop(attempt, reason=WORD[Attempt.StopReason(reason)], grace=timedelta(seconds=grace_s))
    except EngineError:  # said again with the next look
        with about(Attempt.objects.get(pk=attempt)):
            log.exception("the attempt could not be told to stop")
        return False
    return True


def _claimed_to_launching() -> None:
    """An attempt may start when it has all its GPUs and no earlier attempt of its job is at an engine.

    The jobs are asked for by their keys: nobody stays in these states for long, so that a database which plans by what
    it last counted there, which is nobody, joins each of the one with each of the other.
    """
    waits = GpuClaim.objects.waiting().filter(attempt=OuterRef("pk"))
    earlier = Attempt.objects.at_engine().filter(job=OuterRef("job"))
    ready = Attempt.objects.filter(~Exists(waits), ~Exists(earlier), state=State.CLAIMED)
    job_of = dict(ready.values_list("pk", "job"))
    starting = set(Job.objects.filter(pk__in=job_of.values(), state=Job.State.STARTING).values_list("pk", flat=True))
    pks = [pk for pk, job in job_of.items() if job in starting]
    Attempt.objects.filter(pk__in=pks, state=State.CLAIMED).update(state=State.LAUNCHING)


def _send_launches(running: dict[str, Engine], now: datetime) -> None:
    due = Attempt.objects.filter(state=State.LAUNCHING, launched_at=None)
    for batch in _batches(list(due.order_by("pk").values_list("pk", flat=True))):
        seats = seats_of(batch)
        attempts = due.filter(pk__in=batch).select_related("job__team", "gpu_type").only(*FOR_LAUNCHES)
        sent = [a.pk for a in attempts.order_by("pk") if _launch(running[a.engine], a, seats[a.pk], now)]
        Attempt.objects.filter(pk__in=sent).update(launched_at=now)


def seats_of(attempts: Sequence[int]) -> dict[int, list[Seat]]:
    """The GPUs that each attempt has claimed."""
    seats: dict[int, list[Seat]] = defaultdict(list)
    for attempt, *where in GpuClaim.objects.filter(attempt__in=attempts).values_list("attempt", *SEAT):
        seats[attempt].append(Seat(*where))
    return seats


def _launch(engine: Engine, attempt: Attempt, seats: Sequence[Seat], now: datetime) -> bool:
    with about(attempt):
        try:
            engine.launch(launch_command(attempt, seats))
        except EngineError as error:
            log.exception("the attempt could not be launched")
            with suppress(AttemptIsNotLive):  # that nothing of it runs is for the engine to prove
                end_attempt(attempt, lost=True, ended_at=now, message=str(error))
            return False
        log.info("the attempt is launched on %s x %s", attempt.gpu_count, attempt.gpu_type)
    return True


def launch_command(attempt: Attempt, seats: Sequence[Seat]) -> Launch:
    """Everything its engine needs to start it."""
    run = _run_of(attempt, seats)
    return launch_of(run, workdir=attempt.job.workdir, log_limit_bytes=settings.MOTLEY_LOG_LIMIT_BYTES)


def _run_of(attempt: Attempt, seats: Sequence[Seat]) -> Run:
    job = attempt.job
    rank = {node: position for position, node in enumerate(attempt.nodes)}
    return Run(
        attempt=attempt.pk,
        number=attempt.number,
        job=str(job.pk),
        name=job.name,
        team=job.team.name,
        command=job.command,
        env=job.env,
        gpu_type=attempt.gpu_type.name,
        seats=sorted(seats, key=lambda seat: (rank[seat.node], seat.index)),
        master_port=attempt.master_port,
        rate=attempt.own_rate,
        batch_size=attempt.batch_size,
        micro_batches=attempt.micro_batches,
        resume=attempt.number > 1,
        grace_s=job.grace_s,
        array_index=job.array_index,
        api_url=f"{settings.PUBLIC_URL}/api/v1",
        job_token=JobToken.issue(attempt.pk),
    )
