"""Throughput and gradient noise measured from running jobs, shared by the jobs of a workload."""

from math import log

from django.db import models
from django.db.models import Q

from cluster_app.models import GpuType
from estimation.fading_means import FadingRate
from jobs_app.models.team import Team

MOST_RUNS = 20
"""Window of the mean difference between runs: older ones lose weight, so that a changed program shows."""


class MeasuredRate(models.Model):
    """Rate of a workload in one configuration (GPU type, GPUs, nodes): a fading mean over attempts.

    A step has `batch_size` samples, so samples/s are the product.
    """

    team = models.ForeignKey(Team, on_delete=models.CASCADE)
    workload = models.CharField(max_length=200)
    gpu_type = models.ForeignKey(GpuType, on_delete=models.CASCADE)
    gpus = models.PositiveIntegerField()
    nodes = models.PositiveIntegerField()
    batch_size = models.PositiveIntegerField(default=0, help_text="Samples of a step; 0: the job did not say.")
    steps_per_second = models.FloatField()
    reports = models.PositiveIntegerField(default=0, help_text="Progress reports behind the figure.")
    spread = models.FloatField(default=0, help_text="Standard deviation between progress reports, steps/s.")
    runs = models.PositiveIntegerField(default=0, help_text="Attempts behind the figure.")
    log_sum = models.FloatField(default=0, help_text="Of the logarithm of each attempt's rate.")
    log_square_sum = models.FloatField(default=0, help_text="Of its square.")
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        abstract = True

    def add(self, *, rate: float, reports: int) -> None:
        """Update mean and standard deviation with a new rate, weighted by the reports behind it; nothing is saved."""
        before = FadingRate(self.steps_per_second, self.spread, self.reports)
        self.steps_per_second, self.spread, self.reports = before.with_reports(rate, reports)

    def add_run(self, *, rate: float, before: float | None) -> None:
        """Count an attempt with its rate so far, in place of what it was `before`; nothing is saved."""
        x, old = log(rate), log(before) if before and self.runs else None
        if old is None and self.runs >= MOST_RUNS:
            self.log_sum, self.log_square_sum = (
                one * (1 - 1 / MOST_RUNS) for one in (self.log_sum, self.log_square_sum)
            )
        self.runs += old is None
        self.log_sum += x - (old or 0)
        self.log_square_sum += x**2 - (old or 0) ** 2


class Throughput(MeasuredRate):
    """Throughput of a workload in one configuration, whatever CPUs its attempts had."""

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=("team", "workload", "gpu_type", "gpus", "nodes", "batch_size"),
                name="throughput_once_per_configuration",
            ),
            models.CheckConstraint(
                condition=Q(gpus__gt=0, nodes__gt=0, steps_per_second__gte=0, spread__gte=0),
                name="throughput_in_range",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.workload} on {self.gpus} x {self.gpu_type}: {self.steps_per_second:.3g} steps/s"


class CpuRate(MeasuredRate):
    """Throughput of a workload in one configuration with one number of CPUs per GPU, as rounds gave it."""

    cpus_per_gpu = models.PositiveIntegerField()

    class Meta:
        verbose_name = "CPU rate"
        constraints = [
            models.UniqueConstraint(
                fields=("team", "workload", "gpu_type", "gpus", "nodes", "cpus_per_gpu", "batch_size"),
                name="cpu_rate_once_per_configuration",
            ),
            models.CheckConstraint(
                condition=Q(gpus__gt=0, nodes__gt=0, cpus_per_gpu__gt=0, steps_per_second__gte=0, spread__gte=0),
                name="cpu_rate_in_range",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.workload} with {self.cpus_per_gpu} CPUs per GPU: {self.steps_per_second:.3g} steps/s"


class GradientNoise(models.Model):
    """Gradient noise of a workload: a fading mean of the reports of its jobs."""

    team = models.ForeignKey(Team, on_delete=models.CASCADE)
    workload = models.CharField(max_length=200)
    grad_sqr = models.FloatField(help_text="Squared norm of the gradient.")
    sample_var = models.FloatField(help_text="Variance of the gradient of one sample.")
    reports = models.PositiveIntegerField(default=0)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        verbose_name_plural = "gradient noise"
        constraints = [
            models.UniqueConstraint(fields=("team", "workload"), name="gradient_noise_once_per_workload"),
            models.CheckConstraint(condition=Q(grad_sqr__gte=0, sample_var__gte=0), name="gradient_noise_in_range"),
        ]

    def __str__(self) -> str:
        return f"{self.workload}: {self.grad_sqr:.3g}, {self.sample_var:.3g} a sample"
