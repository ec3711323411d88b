"""Submitting: from specs that a person wrote to jobs in the queue."""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone

from audit_app.models import Action
from audit_app.services import note
from jobs_app.admission import Admission, Admitted, Asked
from jobs_app.batch import admitted_batch
from jobs_app.models import Job
from jobs_app.queueing import enqueue
from jobs_app.spec import parse_spec, spec_of


def submit_job(data: Any, *, owner: User) -> Job:
    """Queue the job that the spec describes; for an array all of it, and the answer is its first."""
    return enter(admitted(data, owner))


def submit_batch(data: Any, *, owner: User) -> list[UUID]:
    """Queue all of `{jobs: [...]}` or none; `#3` in `after` is the fourth of them, which must come before."""
    return enter_batch(admitted_batch(data, owner))


def clone_job(job: Job, *, owner: User, changes: Any = None) -> Job:
    """Submit the same again, as the person who asks, but for what `changes` says."""
    return enter(admitted(spec_of_clone(job, changes), owner))


def spec_of_clone(job: Job, changes: Any = None) -> Any:
    """What the job was asked for, without what it waited for and a deadline that is over."""
    over = job.deadline is not None and job.deadline <= timezone.now()
    left_out = {"after", "deadline"} if over else {"after"}
    spec = {name: value for name, value in spec_of(job).items() if name not in left_out}
    if changes is None:
        return spec
    return {**spec, **changes} if isinstance(changes, Mapping) else changes


def admitted(data: Any, owner: User) -> Admitted:
    """The spec, parsed and found good for this person and this cluster; nothing is written."""
    asked = Asked.of(parse_spec(data))
    return Admission(owner, [need["job"] for need in asked.needs]).admit(asked)


@transaction.atomic
def enter(one: Admitted) -> Job:
    """Write down the job, or the whole array, of which the answer is the first."""
    first, ids = enqueue([one])
    many = f"an array of {len(ids)}" if one.array else ""
    note(Action.JOB_SUBMIT, actor=one.owner, target=str(first), target_id=first.pk, message=many)
    return first


@transaction.atomic
def enter_batch(many: Sequence[Admitted]) -> list[UUID]:
    """Write down all of them, in this order."""
    first, ids = enqueue(many)
    note(Action.JOB_BATCH, actor=first.owner, target=f"{len(ids)} jobs", target_id=first.pk)
    return ids
