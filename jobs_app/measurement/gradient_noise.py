"""Gradient noise of a workload (as Sia and Pollux use it): a fading mean of the reports of its jobs."""

from collections.abc import Iterable
from math import isfinite
from typing import NamedTuple, Self

from database.bulk_update import rewrite
from estimation.fading_means import FadingNoise
from jobs_app.models import GradientNoise

LARGEST_SCALE = 1e12
"""Samples; a gradient with more noise than that is all noise."""


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
        if not batch or sqr is None or var is None or min(sqr, var) < 0 or max(sqr, var) == 0:
            return None
        sample_var = var * batch
        if not (isfinite(sqr) and isfinite(sample_var)):
            return None
        return cls(team, workload, max(sqr, sample_var / LARGEST_SCALE) if sqr else sqr, sample_var, batch)

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
