"""Submitting: from specs that a person wrote to jobs in the queue."""

from collections.abc import Mapping, Sequence
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction

from audit_app.models import Action
from audit_app.services import note
from jobs_app.admission import Admission, Asked
from jobs_app.batch import admitted_batch
from jobs_app.models import Job
from jobs_app.queueing import enqueue
from jobs_app.spec import parse_spec, spec_of


def submit_job(data: Any, *, owner: User) -> Job:
    """Queue the job that the spec describes; for an array all of it, and the answer is its first."""
    return enter(admitted(data, owner))


def submit_batch(data: Any, *, owner: User) -> list[Job]:
    """Queue all of `{jobs: [...]}` or none; `#3` in `after` is the fourth of them, which must come before."""
    return enter_batch(admitted_batch(data, owner))


def clone_job(job: Job, *, owner: User, changes: Any = None) -> Job:
    """Submit the same again, as the person who asks, but for what `changes` says."""
    return enter(admitted(spec_of_clone(job, changes), owner))


def spec_of_clone(job: Job, changes: Any = None) -> Any:
    """What the job was asked for, without what it waited for."""
    spec = {name: value for name, value in spec_of(job).items() if name != "after"}
    if changes is None:
        return spec
    return {**spec, **changes} if isinstance(changes, Mapping) else changes


def admitted(data: Any, owner: User) -> Asked:
    """The spec, parsed and found good for this person and this cluster; nothing is written."""
    asked = Asked.of(parse_spec(data))
    Admission(owner, [need["job"] for need in asked.needs]).admit(asked)
    return asked


@transaction.atomic
def enter(asked: Asked) -> Job:
    """Write down the job, or the whole array, of which the answer is the first."""
    jobs = enqueue([asked])
    many = f"an array of {len(jobs)}" if asked.array else ""
    note(Action.JOB_SUBMIT, actor=jobs[0].owner, target=str(jobs[0]), target_id=jobs[0].pk, message=many)
    return jobs[0]


@transaction.atomic
def enter_batch(asked: Sequence[Asked]) -> list[Job]:
    jobs = enqueue(asked)
    note(Action.JOB_BATCH, actor=jobs[0].owner, target=f"{len(jobs)} jobs", target_id=jobs[0].pk)
    return jobs
