"""Gradient noise of a workload (as Sia and Pollux use it): a fading mean of the reports of its jobs."""

from collections.abc import Iterable
from typing import NamedTuple, Self

from database.bulk_update import rewrite
from estimation.fading_means import FadingNoise
from jobs_app.models import GradientNoise


class Gradients(NamedTuple):
    """One report: squared norm of the gradient, variance of the gradient of one sample, and samples of a step."""

    team: int
    workload: str
    sqr: float
    sample_var: float
    batch: int

    @classmethod
    def of_batch(cls, team: int, workload: str, batch: int, sqr: float | None, var: float | None) -> Self | None:
        """Scale the variance of a batch to that of one sample, which is larger by the batch size; None if invalid."""
        if batch and sqr is not None and var is not None and min(sqr, var) >= 0 < max(sqr, var):
            return cls(team, workload, sqr, var * batch, batch)
        return None

    @property
    def noise_scale(self) -> float | None:
        """Variance of a sample's gradient over the squared norm, in samples; None: the gradient is all noise."""
        return self.sample_var / self.sqr if self.sqr > 0 else None


def learn_noise(news: Iterable[Gradients]) -> None:
    """Merge reports into the stored means of their workloads; without reports there is no query."""
    fresh = list(news)
    if not fresh:
        return
    rows = GradientNoise.objects.filter(workload__in={one.workload for one in fresh})
    told = {(one.team, one.workload) for one in fresh}
    known = {key: row for row in rows if (key := (row.team_id, row.workload)) in told}
    for one in fresh:
        blank = GradientNoise(team_id=one.team, workload=one.workload, grad_sqr=0.0, sample_var=0.0)
        _merge(known.setdefault((one.team, one.workload), blank), one)
    changed = {row.pk: (row.grad_sqr, row.sample_var, row.reports) for row in known.values() if row.pk}
    rewrite(GradientNoise, ("grad_sqr", "sample_var", "reports"), changed)
    GradientNoise.objects.bulk_create([row for row in known.values() if not row.pk])


def _merge(known: GradientNoise, one: Gradients) -> None:
    before = FadingNoise(known.grad_sqr, known.sample_var, known.reports)
    known.grad_sqr, known.sample_var, known.reports = before.with_reports(one.sqr, one.sample_var)
