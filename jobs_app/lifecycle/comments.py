"""Comments of people on jobs: events of the kind `commented`, which stay as long as the job."""

from uuid import UUID

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import QuerySet

from audit_app.models import Action
from audit_app.services import note
from jobs_app.errors import Conflict, InvalidSpec, JobIsArchived, NotAllowed
from jobs_app.lifecycle.attempts import lock_job
from jobs_app.models import Job, JobEvent

MOST_CHARACTERS = 500
MOST_COMMENTS = 100


def comment_on_job(job: Job, text: str, *, actor: User) -> JobEvent:
    """Add a comment to the history of the job, which may have finished."""
    words = _checked(text)
    with transaction.atomic():
        _lock(job.pk)
        if comments_on(job).count() >= MOST_COMMENTS:
            raise Conflict(f"A job has at most {MOST_COMMENTS} comments: delete one first.")
        note(Action.JOB_COMMENT, actor=actor, target=str(job), target_id=job.pk)
        return JobEvent.objects.create(job=job, kind=JobEvent.Kind.COMMENTED, message=words, actor=actor)


def delete_comment(comment: JobEvent, *, actor: User, administrator: bool) -> None:
    """Delete a comment, as its author or as an administrator."""
    if comment.actor_id != actor.pk and not administrator:
        raise NotAllowed("Only its author or an administrator can delete a comment.")
    with transaction.atomic():
        _lock(comment.job_id)
        if JobEvent.objects.filter(pk=comment.pk).delete()[0]:
            note(Action.JOB_UNCOMMENT, actor=actor, target=str(comment.job), target_id=comment.job_id)


def _lock(job_id: UUID) -> None:
    """Lock the job: a comment on a job that is being archived would be lost."""
    lock_job(job_id)
    if not Job.objects.filter(pk=job_id).exists():
        raise JobIsArchived


def comments_on(job: Job) -> QuerySet[JobEvent]:
    """Comments on the job, the oldest first."""
    return job.events.filter(kind=JobEvent.Kind.COMMENTED).select_related("actor")


def _checked(text: str) -> str:
    words = " ".join(text.split())
    if not words:
        raise InvalidSpec.at("/text", "blank", "Write the comment.")
    if "\0" in words:
        raise InvalidSpec.at("/text", "invalid", "A comment cannot hold the character NUL: remove it.")
    if len(words) > MOST_CHARACTERS:
        too_long = f"A comment has at most {MOST_CHARACTERS} characters; this one has {len(words):,}. Shorten it."
        raise InvalidSpec.at("/text", "max_length", too_long)
    return words
