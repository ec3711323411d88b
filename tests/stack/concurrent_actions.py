"""Actions of concurrent processes on the same rows. Arguments and results are words and numbers: they cross a pipe."""

from datetime import timedelta
from time import sleep
from typing import Any
from unittest.mock import patch
from uuid import UUID

from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone
from rest_framework.test import APIClient

from allocation.plan_round import Plan
from cluster_app.models import Gpu, GpuType, Node
from cluster_app.services import add_node
from connections_app.register_machine import gpu_type_columns
from jobs_app.lifecycle.attempt_endings import AttemptEnd, end_attempt
from jobs_app.lifecycle.attempts import lock_job, note_running, preempt
from jobs_app.lifecycle.commands import cancel_job, hold_job, release_job
from jobs_app.lifecycle.dependencies import settle_dependencies
from jobs_app.models import ApiToken, Attempt, GpuClaim, Job, JobEvent, Team
from jobs_app.submission.submit import submit_job
from jobs_app.tokens import issue_token
from scheduler_app.models import PolicySetting, Round, SchedulerLease
from scheduler_app.round import lease
from scheduler_app.round.commit import commit_round
from scheduler_app.round.dispatch import promote_waiting_claims
from scheduler_app.round.inputs import newest_events
from scheduler_app.round.lease import holder_name
from scheduler_app.round.reconcile import release_claims
from scheduler_app.round.run_round import OpenedRound, decide, take_snapshot
from scheduler_app.round.snapshot import Snapshot

SHORT_LEASE = timedelta(seconds=0.05)
decided: list[tuple[Round, Snapshot, Plan]] = []
"""What this process has decided and not yet committed."""


def nothing() -> None:
    """Take part without an action."""


# -- what there is --------------------------------------------------------------------------------------------------


def prepare(gpus: int) -> None:
    """One node and one person, in a database that has been migrated."""
    kind = GpuType.objects.create(name="a100", **gpu_type_columns("a100"))
    add_node("n1", kind, gpus=gpus, cpus=64, memory_mib=2**19, emulated=True)
    Node.objects.update(health=Node.Health.HEALTHY)  # no scheduler asks the engine
    Team.objects.create(name="vision").members.add(User.objects.create(username="ada"))


def clear() -> None:
    Job.objects.all().delete()
    Round.objects.all().delete()
    SchedulerLease.objects.all().delete()


def token() -> str:
    return issue_token(User.objects.get(), name="test", scope=ApiToken.Scope.SUBMIT)


def submit(spec: dict[str, Any] | None = None) -> str:
    whole = {"name": "job", "team": "vision", "command": "true", "gpus": 1, **(spec or {})}
    return str(submit_job(whole, owner=User.objects.get()).pk)


def attempted() -> Attempt:
    """Of a job of its own, without a GPU."""
    job = submit()
    ports = {"master_port": 29_600 + Attempt.objects.count(), "round_number": 1}
    where = {"gpu_type": GpuType.objects.get(), "gpu_count": 1, "engine": "local", "nodes": ["n1"]}
    return Attempt.objects.create(job_id=UUID(job), number=1, state=Attempt.State.LAUNCHING, **where, **ports)


def attempt_without_gpu() -> int:
    return attempted().pk


def launched() -> tuple[str, int]:
    """A job of which an engine has been told, and its attempt, which holds a GPU."""
    attempt = attempted()
    job = str(attempt.job_id)
    GpuClaim.objects.create(gpu=Gpu.objects.order_by("pk")[0], attempt=attempt, held_from=timezone.now())
    Job.objects.filter(pk=job).update(state=Job.State.STARTING, attempt_count=1)
    return job, attempt.pk


def running() -> tuple[str, int]:
    job, attempt = launched()
    note_running({attempt: timezone.now()})
    return job, attempt


def failed_with_child() -> tuple[str, str]:
    """A job that is failing, and one that needs its success."""
    parent = submit()
    child = submit({"after": [{"job": parent, "on": "success"}]})
    Job.objects.filter(pk=parent).update(state=Job.State.FAILED, finished_at=timezone.now())
    return parent, child


# -- actions ----------------------------------------------------------------------------------------------------------


def cancel(job: str) -> None:
    cancel_job(Job.objects.get(pk=job), actor=None)


def hold(job: str) -> None:
    hold_job(Job.objects.get(pk=job), actor=None)


def release(job: str) -> None:
    release_job(Job.objects.get(pk=job), actor=None)


def begin(attempt: int) -> bool:
    return bool(note_running({attempt: timezone.now()}))


def end(attempt: int, exit_code: int) -> None:
    seen = Attempt.objects.select_related("job").get(pk=attempt)
    end_attempt(seen, AttemptEnd(timezone.now(), exit_code=exit_code, gone=True))


def make_room(job: str, attempt: int) -> bool:
    with transaction.atomic():
        lock_job(UUID(job))
        return bool(preempt({attempt: "for another"}))


def decide_on(number: int) -> None:
    """A round up to its commit, with that number, also if another round has it."""
    now, setting = timezone.now(), PolicySetting.objects.current()
    opening = OpenedRound(number, now, *newest_events())
    snapshot, _, _, since = take_snapshot(now, setting)
    record = opening.record(Round.Result.COMMITTED, setting=setting, shares_since=since)
    decided[:] = [(record, snapshot, decide(snapshot, setting.policy, setting.parameters))]


def commit(holder: str) -> None:
    record, snapshot, plan = decided.pop()
    commit_round(record, snapshot, plan, holder=holder, now=timezone.now())


def open_round(holder: str) -> int:
    assert lease.acquire_lease(holder, timezone.now())
    return lease.open_round(holder, timezone.now())


def claim(attempt: int) -> None:
    GpuClaim.objects.create(gpu=Gpu.objects.order_by("pk")[0], attempt_id=attempt, held_from=timezone.now())


def grant() -> None:
    release_claims(timezone.now())
    promote_waiting_claims(timezone.now())


def settle() -> None:
    settle_dependencies()


def post(token: str, key: str, body: dict[str, Any]) -> tuple[int, str]:
    """Submit over REST with an idempotency key: the status, and the job's id."""
    caller = APIClient(headers={"authorization": f"Bearer {token}", "idempotency-key": key, "host": "localhost"})
    answer = caller.post("/api/v1/jobs", body, format="json")
    return answer.status_code, answer.json().get("id", "")


def contend(times: int) -> list[tuple[str, float, float]]:
    """Take the lease again and again: its holders, and for certain from when until when."""
    had = []
    name = holder_name()
    with patch.object(lease, "LEASE", SHORT_LEASE):
        for turn in range(times):
            asked = timezone.now()
            if not lease.acquire_lease(name, asked):
                continue
            begun, until = timezone.now(), asked + SHORT_LEASE
            if turn % 3 == 0:  # now and then it is given back, else it runs out
                until = min(until, timezone.now())
                lease.release_lease(name, timezone.now())
            else:
                sleep(SHORT_LEASE.total_seconds() * (turn % 2) * 1.5)
            if begun < until:  # on a busy machine the answer may come when the lease has run out
                had.append((name, begun.timestamp(), until.timestamp()))
    return had


# -- what came of it ------------------------------------------------------------------------------------------------


def state(job: str) -> tuple[str, bool]:
    found = Job.objects.get(pk=job)
    return found.state, found.held


def column(job: str, name: str) -> Any:
    return Job.objects.values_list(name, flat=True).get(pk=job)


def events(job: str, kind: str) -> int:
    return JobEvent.objects.filter(job=job, kind=kind).count()


def jobs() -> int:
    return Job.objects.count()


def live_attempts(job: str) -> int:
    return Attempt.objects.live().filter(job=job).count()


def holders_of_gpus() -> list[int]:
    """How many hold each GPU that is held."""
    release_claims(timezone.now())
    held = list(GpuClaim.objects.holding().values_list("gpu", flat=True))
    return [held.count(gpu) for gpu in {*held}]
