"""Persistent counters for metrics, shared by all processes."""

from django.db import models


class Metric(models.TextChoices):
    """Name of a counter or histogram; its label separates the series."""

    JOBS_FINISHED = "jobs_finished", "jobs that finished, by state"
    JOB_WAIT = "job_wait_seconds", "seconds from submission, or a later begin time, to the first start"
    PREEMPTIONS = "preemptions", "attempts that were stopped for something else, by reason"
    PREEMPTED_WORK = "preempted_work_seconds", "GPU-seconds of work that was lost by that"
    ROUNDS = "rounds", "rounds, by result"
    ROUND_TIME = "round_seconds", "seconds of a round"
    SOLVER_TIME = "solver_seconds", "seconds of deciding"
    FINISH_TIME_FAIRNESS = "finish_time_fairness_ratio", "rho of a job that succeeded"


class Tally(models.Model):
    """Increment of a counter, inserted in the transaction of what it counts.

    Rows are only inserted: an UPDATE of one total would serialise all transactions that count.
    """

    metric = models.CharField(max_length=40, choices=Metric.choices)
    label = models.CharField(max_length=40, blank=True)
    value = models.FloatField(default=1)

    class Meta:
        verbose_name_plural = "tallies"

    def __str__(self) -> str:
        return f"{self.metric} {self.label} +{self.value:g}"


class Total(models.Model):
    """Sum of the tallies that have been folded in."""

    metric = models.CharField(max_length=40, choices=Metric.choices)
    label = models.CharField(max_length=40, blank=True)
    value = models.FloatField(default=0)

    class Meta:
        constraints = [models.UniqueConstraint(fields=("metric", "label"), name="total_once")]

    def __str__(self) -> str:
        return f"{self.metric} {self.label}: {self.value:g}"
