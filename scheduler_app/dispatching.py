"""Commands to the engines: stops first, then the attempts whose GPUs have come free. Every one may be repeated."""

import logging
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import TypeVar

from django.conf import settings
from django.db.models import Exists, OuterRef, Prefetch

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

NOT_FOR_LAUNCHES = ("job__rates", "job__gpu_types", "job__batch_size", "job__reasons", "job__tags")
"""Documents that were read for the round, or are for people."""

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
    """An attempt may start when it has all its GPUs and no earlier attempt of its job is at an engine."""
    waits = GpuClaim.objects.waiting().filter(attempt=OuterRef("pk"))
    earlier = Attempt.objects.at_engine().filter(job=OuterRef("job"))
    ready = Attempt.objects.filter(state=State.CLAIMED, job__state=Job.State.STARTING)
    pks = list(ready.filter(~Exists(waits), ~Exists(earlier)).values_list("pk", flat=True))
    Attempt.objects.filter(pk__in=pks, state=State.CLAIMED).update(state=State.LAUNCHING)


def _send_launches(running: dict[str, Engine], now: datetime) -> None:
    due = Attempt.objects.filter(state=State.LAUNCHING, launched_at=None)
    claims = Prefetch("claims", GpuClaim.objects.select_related("gpu__node"))
    for batch in _batches(list(due.order_by("pk").values_list("pk", flat=True))):
        attempts = due.filter(pk__in=batch).select_related("job__team", "gpu_type").defer(*NOT_FOR_LAUNCHES)
        sent = [a.pk for a in attempts.prefetch_related(claims).order_by("pk") if _launch(running[a.engine], a, now)]
        Attempt.objects.filter(pk__in=sent).update(launched_at=now)


def _launch(engine: Engine, attempt: Attempt, now: datetime) -> bool:
    with about(attempt):
        try:
            engine.launch(launch_command(attempt))
        except EngineError as error:
            log.exception("the attempt could not be launched")
            with suppress(AttemptIsNotLive):  # that nothing of it runs is for the engine to prove
                end_attempt(attempt, lost=True, ended_at=now, message=str(error))
            return False
        log.info("the attempt is launched on %s x %s", attempt.gpu_count, attempt.gpu_type)
    return True


def launch_command(attempt: Attempt) -> Launch:
    """Everything its engine needs to start it."""
    return launch_of(_run_of(attempt), workdir=attempt.job.workdir, log_limit_bytes=settings.MOTLEY_LOG_LIMIT_BYTES)


def _run_of(attempt: Attempt) -> Run:
    job = attempt.job
    rank = {node: position for position, node in enumerate(attempt.nodes)}
    gpus = sorted((claim.gpu for claim in attempt.claims.all()), key=lambda gpu: (rank[gpu.node.name], gpu.index))
    return Run(
        attempt=attempt.pk,
        number=attempt.number,
        job=str(job.pk),
        name=job.name,
        team=job.team.name,
        command=job.command,
        env=job.env,
        gpu_type=attempt.gpu_type.name,
        seats=[Seat(gpu.node.name, gpu.index, gpu.uuid, gpu.node.emulated) for gpu in gpus],
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
