"""Identical jobs of two teams on three GPU types under the default policy, read from REST."""

from typing import Any

from tests.deployment import wait_for
from tests.service.running_service import Service

RATES = {"a100": 60.0, "v100": 30.0, "t4": 15.0}
TEAMS = """
from django.contrib.auth.models import User
from jobs_app.models import Team
Team.objects.filter(name="vision").update(weight=2)
Team.objects.get_or_create(name="language")[0].members.add(*User.objects.all())
"""


def attempts_of(service: Service, jobs: list[str]) -> dict[str, list[dict[str, Any]]]:
    """Attempts that ran, in their order, by job."""
    found = {job: service.client.job(job)["attempts"] for job in jobs}
    return {job: [a for a in attempts if a["started_at"]] for job, attempts in found.items()}


def test_every_job_has_run_before_any_has_its_third_turn(service: Service) -> None:
    service.declare(a100=4, v100=4, t4=4, min_run_s=2, policy="motley")
    service.python(TEAMS)
    command = ["python", "-m", "motley_client.sample", "--steps", "240"]
    spec: dict[str, Any] = {"gpus": 4, "rates": RATES, "total_steps": 240, "checkpoint": {"restore_seconds": 1}}
    jobs = [
        service.submit(command, name=f"job-{n}", team="language" if n % 3 == 0 else "vision", **spec) for n in range(12)
    ]
    wait_for("all jobs end", lambda: all(service.client.job(job)["state"] == "succeeded" for job in jobs))

    attempts = attempts_of(service, jobs)
    first = [ran[0]["started_at"] for ran in attempts.values()]
    third = [ran[2]["started_at"] for ran in attempts.values() if len(ran) > 2]
    assert max(first) <= min(third, default=max(first))
    assert sum(len(ran) - 1 for ran in attempts.values()) <= 3 * len(jobs)
