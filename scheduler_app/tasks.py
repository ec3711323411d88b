"""Celery tasks of the full stack: short, and safe to run twice."""

from celery import shared_task
from django.utils import timezone

from scheduler_app.round.lease import holder_name
from scheduler_app.round.tick import tick


@shared_task  # type: ignore[untyped-decorator]
def run_tick() -> bool:
    """Run one tick; idempotent, and of overlapping runs only the lease holder's does anything."""
    return tick(holder_name(), timezone.now())
