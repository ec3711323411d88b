"""The demo's sample jobs, submitted at once."""

from django.contrib.auth.models import User

from jobs_app.submission.submit import submit_job
from operations.sample_jobs import sample_jobs


def submit_samples(owner: User) -> None:
    """A dozen small trainings: long and short, wide and narrow, fast on one type or on all."""
    for spec in sample_jobs():
        submit_job(spec, owner=owner)
