"""Celery tasks of the full stack: a turn of each loop of the scheduler, safe to run twice."""

from celery import shared_task
from django.utils import timezone

from operations.loops import engine_turn, round_turn
from scheduler_app.round.lease import holder_name


@shared_task  # type: ignore[untyped-decorator]
def run_engine_turn() -> bool:
    """One turn of the engine loop; of overlapping turns only the lease holder's does anything."""
    return engine_turn(holder_name(), timezone.now())


@shared_task  # type: ignore[untyped-decorator]
def run_round_turn() -> bool:
    """One turn of the round loop; of overlapping turns only the lease holder's does anything."""
    return round_turn(holder_name(), timezone.now())
