"""A job's history, written line by line."""

from django.contrib.auth.models import User

from jobs_app.models import Job, JobEvent


def record(
    job: Job, kind: JobEvent.Kind, message: str = "", *, actor: User | None = None, attempt: int | None = None
) -> None:
    """Write a line of the job's history; the scheduler looks for news here."""
    JobEvent.objects.create(job=job, kind=kind, message=message[:500], actor=actor, attempt=attempt)
