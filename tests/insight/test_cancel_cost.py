"""What a job loses if it is cancelled: its work that is not known to be saved."""

from datetime import UTC, datetime, timedelta
from typing import Any

from insight_app.explain.attempt_explanations import cancel_cost
from jobs_app.models import Attempt, Job

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def attempt(began: float, ended: float | None, **columns: Any) -> Attempt:
    return Attempt(started_at=at(began), ended_at=None if ended is None else at(ended), gpu_count=2, **columns)


def test_a_job_that_never_ran_loses_nothing() -> None:
    cost = cancel_cost(Job(), [], at(9))
    assert (cost.worked_gpu_s, cost.unsaved_gpu_s, cost.words) == (0, 0, "It has not run yet.")


def test_without_checkpoint_reports_none_of_the_work_is_known_to_be_saved() -> None:
    cost = cancel_cost(Job(), [attempt(0, 10), attempt(20, None)], at(25))
    assert (cost.worked_gpu_s, cost.unsaved_gpu_s) == (30, 30)
    assert "whether any of its work is saved is not known" in cost.words


def test_a_reported_checkpoint_saves_what_was_before_it() -> None:
    attempts = [attempt(0, 10, checkpoint_at=at(4)), attempt(20, None)]
    cost = cancel_cost(Job(), attempts, at(25))
    assert (cost.worked_gpu_s, cost.unsaved_gpu_s, cost.checkpoint_at) == (30, 22, at(4))
    assert cost.attempt is attempts[1]
