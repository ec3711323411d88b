"""How long a job has been waiting."""

from tests.service_lab import Lab


def test_a_requeued_job_waits_from_then_on(lab: Lab) -> None:
    lab.node("n1", gpus=1)
    job = lab.submit("exit 75")
    lab.until(lambda: job.attempts.exclude(ended_at=None).exists())
    job.refresh_from_db()
    assert job.queued_at == job.attempts.earliest("pk").ended_at
