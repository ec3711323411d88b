"""What the lines of the log are about: the round, or the attempt, its job and its nodes."""

from contextlib import AbstractContextManager

from structlog.contextvars import bound_contextvars

from jobs_app.models import Attempt


def about_round(number: int) -> AbstractContextManager[None]:
    return bound_contextvars(round=number)


def about(attempt: Attempt) -> AbstractContextManager[None]:
    """Whoever logs meanwhile, however deep, says which attempt it was about."""
    node = ",".join(attempt.nodes)
    return bound_contextvars(job_id=str(attempt.job_id), attempt=attempt.number, node=node, round=attempt.round_number)
