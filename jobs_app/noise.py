"""The noise of a workload's gradients, as its jobs report it."""

from collections.abc import Iterable
from typing import NamedTuple

from cluster_app.bulk import rewrite
from jobs_app.models import GradientNoise

MOST_REPORTS = 20
"""Weight of the past: the noise grows as the training goes on, so that what was reported long ago must fade."""


class Gradients(NamedTuple):
    """What one job says of a workload's gradients: the squared norm, and the variance of one sample's."""

    team: int
    workload: str
    sqr: float
    sample_var: float


def learn_noise(news: Iterable[Gradients]) -> None:
    """Merge what was reported into what is known of the workloads; no query where nothing was."""
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
    share = 1 / (min(known.reports, MOST_REPORTS) + 1)
    known.grad_sqr += share * (one.sqr - known.grad_sqr)
    known.sample_var += share * (one.sample_var - known.sample_var)
    known.reports += 1
