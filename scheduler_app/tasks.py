"""Celery tasks of the full stack: short, and safe to run twice."""

from celery import shared_task
from django.utils import timezone

from scheduler_app.holder import own_name
from scheduler_app.services import tick


@shared_task  # type: ignore[untyped-decorator]
def run_tick() -> bool:
    """Do what is due; overlapping triggers collapse, because only one worker holds the lease."""
    return tick(own_name(), timezone.now())
