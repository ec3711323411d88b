"""A history for runs of the policy lab: rows of jobs that ran, one after the other."""

from datetime import timedelta

from cluster_app.models import GpuType
from jobs_app.models import Attempt, Job
from tests.service_lab import Lab


def a_day_of_jobs(lab: Lab) -> None:
    """Two A100, and a day on which a long job of ada's came before three short ones of bob's."""
    lab.node("n1", gpus=2)
    lab.policy("fifo", round_s=60)
    bob = lab.user("bob", "language")
    for number, (owner, minutes) in enumerate([(lab.user(), 600), (bob, 10), (bob, 10), (bob, 10)]):
        job = lab.submit(gpus=2, owner=owner, rates={"a100": {"2": 1}}, total_steps=60 * minutes)
        ran(lab, job, after_min=number, minutes=minutes)


def ran(lab: Lab, job: Job, *, after_min: int, minutes: int) -> None:
    """Row of a job that came so late, ran so long when those before it had ended."""
    came = lab.now - timedelta(hours=20) + timedelta(minutes=after_min)
    before = Attempt.objects.order_by("-ended_at").values_list("ended_at", flat=True).first()
    start = max(filter(None, (came, before)))
    end, seconds = start + timedelta(minutes=minutes), 60.0 * minutes
    lab.attempt(
        job,
        state="ended",
        outcome="succeeded",
        gpu_count=job.gpus_min,
        rate=1.0,
        started_at=start,
        ended_at=end,
        gpu_type=GpuType.objects.get(),
    )
    row = {"created_at": came, "started_at": start, "finished_at": end, "ran_s": seconds, "state": "succeeded"}
    Job.objects.filter(pk=job.pk).update(**row)
