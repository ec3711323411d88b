"""Celery tasks of the full stack: a turn of each loop of the scheduler, safe to run twice."""

from celery import shared_task
from django.utils import timezone

from operations.loops import engine_turn, round_turn
from scheduler_app.round.lease import holder_name


@shared_task  # type: ignore[untyped-decorator]
def run_engine_turn() -> bool:
    """Speak with the engines; of overlapping turns only the lease holder's does anything."""
    return engine_turn(holder_name(), timezone.now())


@shared_task  # type: ignore[untyped-decorator]
def run_round_turn() -> bool:
    """Run a round if due, start what follows rounds; of overlapping turns only the lease holder's does anything."""
    return round_turn(holder_name(), timezone.now())
