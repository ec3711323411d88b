"""Submission: parse, admit and enqueue a job, an array or a batch, with an entry in the audit list."""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone
from django.utils.dateparse import parse_datetime

from audit_app.models import Action
from audit_app.services import note
from jobs_app.models import Job
from jobs_app.submission.admission import Admission, Admitted, ParsedSpec
from jobs_app.submission.conversion import IN_REPLICAS, parse_spec
from jobs_app.submission.enqueue import enqueue


def submit_job(data: Any, *, owner: User) -> Job:
    """Submit the job of the spec; of an array return the first member."""
    return enter(admitted(data, owner, administrator=owner.is_staff))


def cloned_spec(spec: Mapping[str, Any], changes: Any = None) -> Any:
    """The spec for a clone: without dependencies and times in the past, overridden by `changes`."""
    left_out = {"after", *(name for name in ("begin_time", "deadline") if _has_passed(spec.get(name, "")))}
    if isinstance(changes, Mapping) and "gpus" in changes:
        left_out |= IN_REPLICAS
    elif isinstance(changes, Mapping) and IN_REPLICAS & changes.keys():
        left_out.add("gpus")
    kept = {name: value for name, value in spec.items() if name not in left_out}
    if changes is None:
        return kept
    return {**kept, **changes} if isinstance(changes, Mapping) else changes


def _has_passed(time: str) -> bool:
    at = parse_datetime(time)
    return at is not None and at <= timezone.now()


def admitted(data: Any, owner: User, *, administrator: bool = False) -> Admitted:
    """Parse the spec and admit it for this owner and cluster; nothing is written."""
    asked = ParsedSpec.of(parse_spec(data))
    parents = [need["job"] for need in asked.needs]
    return Admission(owner, parents, administrator=administrator).admit(asked)


@transaction.atomic(savepoint=False)
def enter(one: Admitted) -> Job:
    """Insert the job, or the whole array; return the first member."""
    first, ids = enqueue([one])
    many = f"an array of {len(ids)}" if one.array else ""
    note(Action.JOB_SUBMIT, actor=one.owner, target=str(first), target_id=first.pk, message=many)
    return first


@transaction.atomic(savepoint=False)
def enter_batch(many: Sequence[Admitted]) -> list[UUID]:
    """Insert all jobs and return their ids in order."""
    first, ids = enqueue(many)
    note(Action.JOB_BATCH, actor=first.owner, target=f"{len(ids)} jobs", target_id=first.pk)
    return ids
