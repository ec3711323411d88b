"""Dispatch commands to the engines: stops first, then launches of attempts that hold their GPUs. Idempotent."""

import logging
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import datetime, timedelta
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from django.conf import settings
from django.db import InterfaceError, OperationalError
from django.db.models import Exists, F, OuterRef, QuerySet, Subquery
from django.db.models.functions import Coalesce, Greatest

from cluster_app.models import WITH_AGENTS, Node
from cluster_app.models import Engine as EngineRow
from cluster_app.storage import StoragePaths
from connections_app.agents.uploads import checkpoints_of
from connections_app.engine_registry import engines
from database.bulk_update import rewrite
from engines.accounts import account_name
from engines.protocol import (
    CheckpointTimes,
    CpuLimit,
    Engine,
    EngineUnreachable,
    Image,
    Launch,
    NodeFault,
    NodeShare,
    StopReason,
)
from estimation.checkpoint_plan import CheckpointTerms
from jobs_app.code.storage import path_of
from jobs_app.lifecycle.attempt_endings import AttemptEnd, AttemptIsNotLive, end_attempt, end_attempts
from jobs_app.lifecycle.attempts import StopOrder, about_attempt, withdraw_all
from jobs_app.models import Attempt, GpuClaim, Job, Reason
from jobs_app.models.attempt import AttemptQuerySet
from jobs_app.secrets import SecretGone, UsableSecrets
from jobs_app.submission.images import may_fetch
from jobs_app.tokens import JobToken
from scheduler_app.errors import NoStorage
from scheduler_app.round.checkpoint_times import times_of
from scheduler_app.round.job_environment import LaunchGpu, LaunchSpec, launch_of, setup_of
from scheduler_app.round.lease import Fence
from scheduler_app.round.node_lifetimes import checkpoint_terms
from scheduler_app.round.slurm_variables import SlurmArray

log = logging.getLogger(__name__)
State = Attempt.State
Item = TypeVar("Item")

COMMANDS_PER_BATCH = 100
"""Commands sent before they are recorded; after a crash those not recorded are sent again."""

ATTEMPT = ("number", "engine", "nodes", "gpu_count", "round_number", "master_port", "rate", "step_worth")
BATCH = ("batch_size", "micro_batches", "batch_choices")
SHARE = ("cpus_per_gpu", "memory_per_gpu_mib", "cpu_memory")
TOLD = ("told_cpus_per_gpu", "told_memory_per_gpu_mib")
"""The share that the environment of the attempt names: it may have started as many workers."""
JOB = (
    "name",
    "owner",
    "command",
    "env",
    "secrets",
    "mounts",
    "image",
    "workdir",
    "gpus_per_replica",
    "cpus_per_gpu",
    "memory_per_gpu_mib",
    "array_index",
    "slurm_variables",
    "continues",
    "team__name",
)
ARRAY = ("array__start", "array__end", "array__indices", "array__at_a_time")
TIMES = ("grace_s", "time_limit_s", "ran_s")
CODE = ("setup", "code__team", "code__digest", "code__lock_digest")
FOR_LAUNCHES = (*ATTEMPT, *BATCH, *SHARE, "gpu_type__name", *(f"job__{name}" for name in (*JOB, *ARRAY, *TIMES, *CODE)))
"""The columns that a launch needs."""
JOINED = ("job__team", "job__code", "job__array", "gpu_type")
BAD_CONFIGURATION = 78
"""sysexits.h: EX_CONFIG."""
LAUNCH_GPU = ("gpu__node__name", "gpu__index", "gpu__uuid", "gpu__node__emulated")

STOP_REASONS = {
    Attempt.StopReason.PREEMPT: StopReason.PREEMPT,
    Attempt.StopReason.MOVE: StopReason.PREEMPT,
    Attempt.StopReason.REQUEUE: StopReason.PREEMPT,
    Attempt.StopReason.WITHDRAW: StopReason.PREEMPT,
    Attempt.StopReason.CANCEL: StopReason.CANCEL,
    Attempt.StopReason.TIMEOUT: StopReason.TIMEOUT,
    Attempt.StopReason.DRAIN: StopReason.DRAIN,
}


def dispatch(fence: Fence, now: datetime) -> None:
    """Send the engines every command that the rows call for and that is not recorded as sent."""
    fence.check()
    states = set(Attempt.objects.live().order_by().values_list("state", flat=True).distinct())
    if not states:
        return
    running = engines()
    if State.STOPPING in states:
        _send_stops(fence, running, now)
    if states & {State.CLAIMED, State.LAUNCHING}:
        with fence.transaction():
            promote_waiting_claims(now)
            _withdraw_from_cordoned_nodes()
            _claimed_to_launching()
            _withdraw_from_disabled_engines(now)
        _send_launches(fence, running, now)
    if states & {State.RUNNING, State.STOPPING}:
        _send_shares(fence, running)
        _send_checkpoint_times(fence, running)


def promote_waiting_claims(now: datetime) -> None:
    """Promote waiting claims whose GPU has no holder.

    A process may have read the clock, stood still, and taken the lease over since: a GPU is held by one at a time by
    the times of its claims, too.
    """
    of_gpu = GpuClaim.objects.filter(gpu=OuterRef("gpu"))
    released_since = of_gpu.filter(released_at__gt=now).order_by("-released_at").values("released_at")[:1]
    claimed = Attempt.objects.filter(pk=OuterRef("attempt")).values("claimed_at")
    held_from = Greatest(now, Subquery(claimed), Coalesce(Subquery(released_since), now))
    GpuClaim.objects.waiting().filter(~Exists(of_gpu.holding())).update(held_from=held_from)


def _send_stops(fence: Fence, running: dict[str, Engine], now: datetime) -> None:
    stops = Attempt.objects.filter(state=State.STOPPING, stop_requested_at=None).exclude(engine__in=_silent_engines())
    rows = stops.order_by("pk").values_list("pk", "engine", "stop_reason", "job__grace_s")
    for batch in _batches(list(rows)):
        fence.check()
        told: dict[str, list[int]] = defaultdict(list)
        for attempt, engine, reason, grace_s in batch:
            if _stop(running[engine], attempt, reason, grace_s):
                told[reason].append(attempt)
        with fence.transaction():
            for reason, attempts in told.items():  # a changed reason is sent again
                Attempt.objects.filter(pk__in=attempts, stop_reason=reason).update(stop_requested_at=now)


def _silent_engines() -> QuerySet[EngineRow, str]:
    """Engines that did not answer when they were last observed: commands to them would only cost time."""
    return EngineRow.objects.exclude(fault="").values_list("name", flat=True)


def _batches(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    return (items[start : start + COMMANDS_PER_BATCH] for start in range(0, len(items), COMMANDS_PER_BATCH))


def _stop(engine: Engine, attempt: int, reason: str, grace_s: int) -> bool:
    try:
        engine.stop(attempt, reason=STOP_REASONS[Attempt.StopReason(reason)], grace=timedelta(seconds=grace_s))
    except Exception:  # retried at the next turn; other attempts are stopped meanwhile
        with about_attempt(Attempt.objects.get(pk=attempt)):
            log.exception("the stop command could not be sent")
        return False
    return True


def _claimed_to_launching() -> None:
    """Mark attempts for launch that hold all their GPUs and whose job has no earlier attempt at an engine.

    Jobs are queried by key, not joined: these states are so short-lived that PostgreSQL's statistics count no row in
    them, and it would plan a nested loop over all.
    """
    waits = GpuClaim.objects.waiting().filter(attempt=OuterRef("pk"))
    earlier = Attempt.objects.at_engine().filter(job=OuterRef("job"))
    ready = Attempt.objects.filter(~Exists(waits), ~Exists(earlier), state=State.CLAIMED)
    job_of = dict(ready.values_list("pk", "job"))
    starting = set(Job.objects.filter(pk__in=job_of.values(), state=Job.State.STARTING).values_list("pk", flat=True))
    pks = [pk for pk, job in job_of.items() if job in starting]
    Attempt.objects.filter(pk__in=pks, state=State.CLAIMED).update(state=State.LAUNCHING)
    vacated = Job.objects.filter(pk__in=starting, reason=Reason.AWAITING_RELEASE)
    vacated.update(reason=Reason.STARTING, message=Reason.STARTING.label)


def _withdraw_from_cordoned_nodes() -> None:
    """Withdraw attempts that wait for GPUs of a node that was cordoned after their round had read it."""
    cordoned = dict(Node.objects.exclude(state=Node.State.READY).values_list("name", "reason"))
    waiting = GpuClaim.objects.open().filter(attempt__state=State.CLAIMED, gpu__node__name__in=cordoned)
    node_of = dict(waiting.values_list("attempt", "gpu__node__name"))
    why = {node: StopOrder(Attempt.StopReason.DRAIN, f"{node}: {reason}") for node, reason in cordoned.items()}
    if node_of:
        withdraw_all({attempt: why[node] for attempt, node in node_of.items()})


def _withdraw_from_disabled_engines(now: datetime) -> None:
    """End attempts that are not yet launched at an engine that was disabled; their jobs go back to the queue."""
    disabled = EngineRow.objects.filter(enabled=False).values_list("name", flat=True)
    unsent = Attempt.objects.filter(state=State.LAUNCHING, launched_at=None, engine__in=list(disabled))
    if engine_of := dict(unsent.values_list("pk", "engine")):
        why = {pk: f"The engine {name} was disabled." for pk, name in engine_of.items()}
        end_attempts({pk: AttemptEnd(now, lost=True, message=text) for pk, text in why.items()})


def _send_launches(fence: Fence, running: dict[str, Engine], now: datetime) -> None:
    due = Attempt.objects.filter(state=State.LAUNCHING, launched_at=None).exclude(engine__in=_silent_engines())
    for batch in _batches(list(due.order_by("pk").values_list("pk", flat=True))):
        fence.check()
        gpus = launch_gpus_of(batch)
        attempts = due.filter(pk__in=batch).select_related(*JOINED).only(*FOR_LAUNCHES)
        sent = _launched(running, list(attempts.order_by("pk")), gpus, now)
        with fence.transaction():
            told = {
                name: F(name.removeprefix("told_")) for name in TOLD
            }  # a share lowered meanwhile counts: the safe side
            Attempt.objects.filter(pk__in=sent.attempts).update(launched_at=now, **told)
            rewrite(Attempt, ("checkpoint_times",), sent.checkpoint_times)
            if sent.with_personal_secrets:
                Attempt.objects.filter(pk__in=sent.with_personal_secrets).update(personal_secrets=True)


class Sent(NamedTuple):
    """Launches that were sent, by attempt."""

    attempts: list[int]
    with_personal_secrets: list[int]
    checkpoint_times: dict[int, tuple[dict[str, Any]]]


def _launched(
    running: dict[str, Engine], attempts: Sequence[Attempt], gpus: dict[int, list[LaunchGpu]], now: datetime
) -> Sent:
    """Launch attempts and return those that were sent; an engine that does not answer is not asked again now."""
    sent = Sent([], [], {})
    unreachable: set[str] = set()
    secrets = UsableSecrets.read(attempt.job for attempt in attempts)
    terms = checkpoint_terms(attempts, now)
    for attempt in attempts:
        if attempt.engine in unreachable:
            continue
        try:
            inputs = LaunchInputs(gpus[attempt.pk], secrets, terms.get(attempt.pk))
            if _launch(running[attempt.engine], attempt, inputs, now):
                sent.attempts.append(attempt.pk)
                if attempt.pk in terms:
                    sent.checkpoint_times[attempt.pk] = (asdict(times_of(terms[attempt.pk])),)
                if secrets.are_personal(attempt.job):
                    sent.with_personal_secrets.append(attempt.pk)
        except EngineUnreachable as error:
            unreachable.add(attempt.engine)
            log.warning("the engine %s does not answer, its launches are repeated: %s", attempt.engine, error)
    return sent


def _send_shares(fence: Fence, running: dict[str, Engine]) -> None:
    """Tell the engines the changed shares of attempts that run; one that is still to start is launched with its own."""
    due = _to_be_told(share_due=True)
    for batch in _batches(list(due.order_by("pk").values_list("pk", flat=True))):
        fence.check()
        gpus = launch_gpus_of(batch)
        attempts = due.filter(pk__in=batch).only("engine", "nodes", *SHARE)
        told = [attempt for attempt in attempts if _set_share(running[attempt.engine], attempt, gpus[attempt.pk])]
        with fence.transaction():
            note_told_shares({attempt.pk: (attempt.cpus_per_gpu, attempt.memory_per_gpu_mib) for attempt in told})


def note_told_shares(told: Mapping[int, tuple[int, int]]) -> None:
    """Record CPUs and MiB sent to engines; an attempt whose share was changed again meanwhile stays due."""
    attempts = Attempt.objects.select_for_update().filter(pk__in=told).order_by("pk")
    amounts = attempts.values_list("pk", "cpus_per_gpu", "memory_per_gpu_mib")
    same = [pk for pk, cpus, memory_mib in amounts if told[pk] == (cpus, memory_mib)]
    Attempt.objects.filter(pk__in=same).update(share_due=False)


def _to_be_told(**due: bool) -> AttemptQuerySet:
    """Attempts with such news, which run, or stop and work on for their grace, at engines that answer."""
    at_work = Attempt.objects.live().filter(state__in=(State.RUNNING, State.STOPPING))
    return at_work.filter(**due).exclude(engine__in=_silent_engines())


def _send_checkpoint_times(fence: Fence, running: dict[str, Engine]) -> None:
    """Tell the engines what jobs that run are to decide from when they save next, where that has changed.

    One batch in a turn: the news of one node may concern all jobs, and launches and stops do not wait for it.
    """
    due = _to_be_told(checkpoint_times_due=True).order_by("pk")
    batch = due.values_list("pk", "engine", "checkpoint_times")[:COMMANDS_PER_BATCH]
    if not batch:
        return
    fence.check()
    sent = {pk: times for pk, engine, times in batch if _set_checkpoint_times(running[engine], pk, times)}
    with fence.transaction():
        stored = Attempt.objects.select_for_update().filter(pk__in=sent).order_by("pk")
        same = [pk for pk, times in stored.values_list("pk", "checkpoint_times") if times == sent[pk]]
        Attempt.objects.filter(pk__in=same).update(checkpoint_times_due=False)


def _set_checkpoint_times(engine: Engine, attempt: int, times: Mapping[str, Any]) -> bool:
    try:
        engine.set_checkpoint_times(attempt, CheckpointTimes(**times))
    except Exception:  # retried at the next turn; other attempts are told meanwhile
        log.exception("the attempt %s could not be told when checkpoints pay", attempt)
        return False
    return True


def _set_share(engine: Engine, attempt: Attempt, gpus: Sequence[LaunchGpu]) -> bool:
    count = Counter(gpu.node for gpu in gpus)
    shares = [
        NodeShare(count[node] * attempt.cpus_per_gpu, count[node] * attempt.memory_per_gpu_mib)
        for node in attempt.nodes
    ]
    try:
        engine.set_share(attempt.pk, shares)
    except Exception:  # retried at the next turn; other attempts are told meanwhile
        log.exception("the share of the attempt %s could not be changed", attempt.pk)
        return False
    return True


def launch_gpus_of(attempts: Sequence[int]) -> dict[int, list[LaunchGpu]]:
    """The GPUs that each attempt has claimed, as its launch needs them."""
    gpus: dict[int, list[LaunchGpu]] = defaultdict(list)
    for attempt, *where in GpuClaim.objects.filter(attempt__in=attempts).values_list("attempt", *LAUNCH_GPU):
        gpus[attempt].append(LaunchGpu(*where))
    return gpus


class LaunchInputs(NamedTuple):
    """Input of launches besides the attempts."""

    gpus: Sequence[LaunchGpu]
    secrets: UsableSecrets
    checkpoints: CheckpointTerms | None = None


def _launch(engine: Engine, attempt: Attempt, inputs: LaunchInputs, now: datetime) -> bool:
    with about_attempt(attempt):
        try:
            engine.launch(launch_command(attempt, inputs))
        except NoStorage as error:
            with suppress(AttemptIsNotLive):
                end_attempt(attempt, AttemptEnd(now, no_storage=True, message=str(error)))
            return False
        except SecretGone as error:
            with suppress(AttemptIsNotLive):
                end_attempt(attempt, AttemptEnd(now, exit_code=BAD_CONFIGURATION, message=str(error)))
            return False
        except EngineUnreachable:
            raise  # nothing was refused: the attempt keeps its GPUs, and the command is repeated
        except NodeFault as error:
            log.error("the node could not start the attempt: %s", error)  # the message says it all
            with suppress(AttemptIsNotLive):
                end_attempt(attempt, AttemptEnd(now, node_fault=True, message=str(error)))
            return False
        except (OperationalError, InterfaceError):
            raise  # of the database, not of this attempt
        except Exception as error:  # whatever it is: other attempts are launched meanwhile
            log.exception("the attempt could not be launched")
            with suppress(AttemptIsNotLive):  # its GPUs are released only when the engine proves that nothing runs
                end_attempt(attempt, AttemptEnd(now, lost=True, message=str(error)))
            return False
        log.info("launched on %s x %s", attempt.gpu_count, attempt.gpu_type)
    return True


def launch_command(attempt: Attempt, inputs: LaunchInputs) -> Launch:
    """The engine's launch command for an attempt."""
    spec = _launch_spec(attempt, inputs)
    job = attempt.job
    locks = job.code.lock_digest if job.code is not None else ""
    return launch_of(
        spec,
        workdir=job.workdir,
        secrets=inputs.secrets.of(job),
        code=path_of(job.code) if job.code is not None else None,
        checkpoints=carried_checkpoints(attempt),
        setup=setup_of(job.setup, team=job.team_id, locks=locks, gpu_type=spec.gpu_type, image=job.image),
        image=Image(job.image, may_fetch(job.image)) if job.image else None,
        log_limit_bytes=settings.MOTLEY_LOG_LIMIT_BYTES,
        limits_memory=settings.MOTLEY_LIMIT_MEMORY,
        limits_cpus=CpuLimit(settings.MOTLEY_LIMIT_CPUS),
        most_processes=settings.MOTLEY_JOB_PROCESSES,
    )


def carried_checkpoints(attempt: Attempt) -> Path | None:
    """What the job's last attempt has saved at an agent, or before its first one a copy from another job.

    At an engine of the site the job's folder has what it saved.
    """
    archive = checkpoints_of(attempt.job_id)
    if not archive.exists():
        return None
    earlier = Attempt.objects.filter(job=attempt.job_id, number__lt=attempt.number, started_at__isnull=False)
    last = earlier.order_by("-number").values_list("engine", flat=True).first()
    return archive if last is None or EngineRow.objects.filter(name=last, kind__in=WITH_AGENTS).exists() else None


def _paths_of(attempt: Attempt) -> dict[str, str]:
    """Path of each storage that the job names, as it is now."""
    if not attempt.job.mounts:
        return {}
    paths = StoragePaths.read().on(attempt.engine, attempt.gpu_type.name)
    if gone := [name for name in attempt.job.mounts if name not in paths]:
        text = f"The storage {', '.join(gone)} was taken from {attempt.gpu_type} of the engine {attempt.engine}."
        raise NoStorage(text)
    return {name: paths[name] for name in attempt.job.mounts}


def _launch_spec(attempt: Attempt, inputs: LaunchInputs) -> LaunchSpec:
    job = attempt.job
    rank = {node: position for position, node in enumerate(attempt.nodes)}
    return LaunchSpec(
        attempt=attempt.pk,
        number=attempt.number,
        job=str(job.pk),
        name=job.name,
        team=job.team.name,
        account=account_name(settings.MOTLEY_JOB_USER, job.team.name),
        command=job.command,
        env=job.env,
        mounts=_paths_of(attempt),
        gpu_type=attempt.gpu_type.name,
        gpus=sorted(inputs.gpus, key=lambda gpu: (rank[gpu.node], gpu.index)),
        gpus_per_replica=job.replica.on(attempt.gpu_type.name),
        cpus_per_gpu=attempt.cpus_per_gpu or job.cpus_per_gpu,
        memory_per_gpu_mib=attempt.memory_per_gpu_mib or job.memory_per_gpu_mib,
        shares_cpus=attempt.cpus_per_gpu > 0,
        master_port=attempt.master_port,
        rate=attempt.own_rate,
        batch_size=attempt.batch_size,
        micro_batches=attempt.micro_batches,
        batch_choices=attempt.batch_choices,
        resume=attempt.number > 1 or job.continues is not None,
        grace_s=job.grace_s,
        time_limit_s=max(ceil(job.time_limit_s - job.ran_s), 1) if job.time_limit_s else None,
        array_index=job.array_index,
        api_url=f"{settings.PUBLIC_URL}/api/v1",
        job_token=JobToken.issue(attempt.pk),
        checkpoints=inputs.checkpoints,
        slurm_variables=job.slurm_variables,
        array=SlurmArray(str(job.array.pk), job.array.all_indices) if job.array else None,
    )
