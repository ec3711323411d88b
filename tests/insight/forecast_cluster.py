"""Jobs of known length on a cluster of one GPU type, and runs of forecasts after a round."""

from datetime import timedelta

from cluster_app.models import Gpu
from insight_app.models import ForecastRun, JobForecast
from insight_app.start_forecasts.runs import forecast_jobs
from jobs_app.models import Attempt, GpuClaim, Job
from scheduler_app.models import Round
from tests.service_lab import Lab

RATE = 10.0


def submitted(lab: Lab, *, minutes: float | None = None, **spec: object) -> Job:
    """A job that declares to take so long on the GPU; None: it declares nothing."""
    declared = {} if minutes is None else {"total_steps": int(minutes * 60 * RATE), "rates": {"a100": RATE}}
    return lab.submit(**(declared | spec))


def running(lab: Lab, job: Job, *, since: timedelta = timedelta()) -> Attempt:
    """It holds the first GPU that is free."""
    attempt = lab.attempt(
        job, state=Attempt.State.RUNNING, launched_at=lab.now - since, started_at=lab.now - since, nodes=["n1"]
    )
    free = Gpu.objects.get(node__name="n1", index=0)
    GpuClaim.objects.create(gpu=free, attempt=attempt, held_from=lab.now - since)
    Job.objects.filter(pk=job.pk).update(state=Job.State.RUNNING, attempt_count=1, started_at=lab.now - since)
    return attempt


def a_round(lab: Lab, number: int = 1) -> Round:
    return Round.objects.create(
        number=number, started_at=lab.now, result=Round.Result.COMMITTED, policy="fifo", shares_since=lab.now
    )


def forecast_now(lab: Lab, number: int = 1) -> ForecastRun:
    a_round(lab, number)
    run = ForecastRun.objects.create(round=number, started_at=lab.now)
    return forecast_jobs(run, lab.now)


def shown(job: Job) -> JobForecast:
    """The forecast that is shown of the job."""
    return JobForecast.objects.get(pk=job.pk)
