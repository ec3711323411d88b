"""Context variables of log lines: the round, or the attempt with its job and nodes."""

from contextlib import AbstractContextManager

from structlog.contextvars import bound_contextvars

from jobs_app.models import Attempt


def about_round(number: int) -> AbstractContextManager[None]:
    """Bind the round's number to all log lines within."""
    return bound_contextvars(round=number)


def about_attempt(attempt: Attempt) -> AbstractContextManager[None]:
    """Bind the attempt, its job and its nodes to all log lines within."""
    node = ",".join(attempt.nodes)
    return bound_contextvars(job_id=str(attempt.job_id), attempt=attempt.number, node=node, round=attempt.round_number)
