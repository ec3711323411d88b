"""Which jobs a caller may see."""

from rest_framework.request import Request

from jobs_app.authentication import JobToken
from jobs_app.models import Job
from jobs_app.models.job import JobQuerySet


def jobs_seen_by(request: Request) -> JobQuerySet:
    """Their teams' jobs, or for a job's own token that job."""
    if isinstance(request.auth, JobToken):
        return Job.objects.filter(pk=request.auth.attempt.job_id)
    return Job.objects.visible_to(request.user)  # type: ignore[arg-type]
