"""How long a job has been waiting."""

from datetime import datetime, timedelta

import pytest

from insight_app.explain.timeline import HOLDS, holds_of, state_spans, waited_s
from jobs_app.models import Attempt, Job, JobEvent
from tests.service_lab import Lab


def test_a_requeued_job_waits_from_then_on(lab: Lab) -> None:
    lab.node("n1", gpus=1)
    job = lab.submit("exit 75")
    lab.until(lambda: job.attempts.exclude(ended_at=None).exists())
    job.refresh_from_db()
    assert job.queued_at == job.attempts.earliest("pk").ended_at


# -- what a job waited for, as its bar tells it --------------------------------------------------------------------


def waits(job: Job, lab: Lab) -> tuple[list[tuple[str, float]], float]:
    attempts = list(job.attempts.all())
    events = job.events.filter(kind__in=HOLDS).order_by("id").values_list("kind", "at")
    spans = state_spans(job, attempts, lab.now, holds_of(job, attempts, events))
    return [(span.state, round(span.seconds / 60)) for span in spans], waited_s(job, spans, lab.now) / 60


def happened(job: Job, kind: JobEvent.Kind, at: datetime) -> None:
    JobEvent.objects.create(job=job, kind=kind, at=at)


def test_a_job_that_waits_for_its_begin_time_is_not_waiting_to_be_placed(lab: Lab) -> None:
    lab.node("n1")
    job, now = lab.submit(), lab.now
    job.created_at, job.begin_time = now - timedelta(hours=2), now - timedelta(hours=1)
    assert waits(job, lab) == ([("deferred", 60), ("queued", 60)], pytest.approx(60, abs=1))
    job.begin_time = now + timedelta(hours=1)
    assert waits(job, lab) == ([("deferred", 120)], 0)


def test_the_time_in_which_a_job_is_held_is_none_of_its_wait(lab: Lab) -> None:
    lab.node("n1")
    job, now = lab.submit(), lab.now
    job.created_at = now - timedelta(hours=4)
    happened(job, JobEvent.Kind.HELD, now - timedelta(hours=3))
    happened(job, JobEvent.Kind.RELEASED, now - timedelta(hours=2))
    happened(job, JobEvent.Kind.HELD, now - timedelta(hours=1))
    job.held = True
    told = [("queued", 60), ("held", 60), ("queued", 60), ("held", 60)]
    assert waits(job, lab) == (told, pytest.approx(120, abs=1))


def test_a_job_that_was_stopped_to_be_held_is_held_since_it_is_back(lab: Lab) -> None:
    lab.node("n1", gpus=1)
    job, now = lab.submit(), lab.now
    job.created_at = job.started_at = now - timedelta(hours=3)
    ran = {"started_at": job.created_at, "ended_at": now - timedelta(hours=2), "gone_at": now - timedelta(hours=2)}
    attempt = lab.attempt(job, state=Attempt.State.ENDED, outcome=Attempt.Outcome.REQUEUED, **ran)
    Attempt.objects.filter(pk=attempt.pk).update(claimed_at=job.created_at)
    happened(job, JobEvent.Kind.RELEASED, now - timedelta(hours=1))
    assert waits(job, lab)[0] == [("running", 60), ("held", 60), ("queued", 60)]
