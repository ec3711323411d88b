"""Measured rates and gradient noise of workloads."""

from collections.abc import Iterable
from math import sqrt
from typing import NamedTuple

from django.db.models import QuerySet

from estimation.profile import Measurement
from jobs_app.models import GradientNoise, Throughput
from jobs_app.models.throughput import MOST_RUNS
from scheduler_app.round.inputs.job_row import JobRow


class MeasuredRow(NamedTuple):
    """A row of `Throughput`."""

    team_id: int
    workload: str
    gpu_type_id: int
    gpus: int
    nodes: int
    batch_size: int
    steps_per_second: float
    reports: int
    spread: float
    runs: int = 0
    log_sum: float = 0.0
    log_square_sum: float = 0.0

    @property
    def measurement(self) -> Measurement:
        latest = min(self.runs, MOST_RUNS)
        variance = self.log_square_sum / latest - (self.log_sum / latest) ** 2 if latest else 0.0
        deviation = sqrt(max(variance, 0.0))
        return Measurement(self.steps_per_second, self.reports, self.spread, self.runs, latest, deviation)


def read_measured(jobs: Iterable[JobRow]) -> list[MeasuredRow]:
    """Measured rates of the workloads of these jobs."""
    workloads = {job.workload for job in jobs}
    return measured_rows(Throughput.objects.filter(workload__in=workloads))


def measured_rows(rates: QuerySet[Throughput]) -> list[MeasuredRow]:
    return [MeasuredRow(*row) for row in rates.values_list(*MeasuredRow._fields)]


def noise_of(workloads: Iterable[str]) -> dict[tuple[int, str], tuple[float, float]]:
    """Gradient noise of workloads whose batch size is tuned; no query where there are none."""
    names = set(workloads)
    rows = GradientNoise.objects.filter(workload__in=names) if names else GradientNoise.objects.none()
    found = rows.values_list("team_id", "workload", "grad_sqr", "sample_var")
    return {(team, workload): (sqr, var) for team, workload, sqr, var in found}
