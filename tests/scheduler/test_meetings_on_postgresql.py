"""A person, the end of an attempt and a round meet at one job, each in a connection of its own.

SQLite lets one writer in at a time; on PostgreSQL they interleave, and must neither block each other for ever nor lose
what the person wants. Run with MOTLEY_DATABASE=postgresql://...
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Barrier

import pytest
from django.db import connection, transaction
from service_lab import Lab

from jobs_app.attempts import AttemptIsNotLive, end_attempt, lock_job, preempt
from jobs_app.models import Attempt, Job
from jobs_app.services import cancel_job, hold_job

pytestmark = [
    pytest.mark.skipif(connection.vendor != "postgresql", reason="only there do writers interleave"),
    pytest.mark.django_db(transaction=True),
]
MEETINGS = 30


@pytest.fixture
def lab(transactional_db: None, lab: Lab) -> Lab:
    lab.node("n1")
    return lab


def meet(*deeds: Callable[[], object]) -> None:
    """Do all at once."""
    barrier = Barrier(len(deeds))

    def do(deed: Callable[[], object]) -> None:
        barrier.wait()
        try:
            deed()
        finally:
            connection.close()

    with ThreadPoolExecutor(len(deeds)) as threads:
        list(threads.map(do, deeds))


def meet_at_a_running_job(lab: Lab, person: Callable[..., None]) -> Job:
    """The job, after a person, its end and a round that takes its GPUs have met."""
    job = lab.submit()
    attempt = lab.attempt(job, state=Attempt.State.RUNNING)
    Job.objects.filter(pk=job.pk).update(state=Job.State.RUNNING, attempt_count=1)

    def end() -> None:
        with suppress(AttemptIsNotLive):
            end_attempt(attempt, exit_code=75, ended_at=lab.now, gone=True)

    def preempted() -> None:
        with transaction.atomic():
            lock_job(job.pk)
            preempt({attempt.pk: "for another"})

    meet(end, preempted, lambda: person(job, actor=None))
    job.refresh_from_db()
    return job


def test_a_cancel_is_never_lost(lab: Lab) -> None:
    found = [meet_at_a_running_job(lab, cancel_job).state for _ in range(MEETINGS)]
    assert set(found) == {Job.State.CANCELLED}


def test_a_hold_is_never_lost(lab: Lab) -> None:
    found = [meet_at_a_running_job(lab, hold_job) for _ in range(MEETINGS)]
    assert {(job.state, job.held) for job in found} == {(Job.State.QUEUED, True)}
