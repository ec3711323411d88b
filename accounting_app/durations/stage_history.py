"""Earlier stages of jobs: ratios of actual to forecast durations of the jobs that they depend on."""

from collections import defaultdict
from collections.abc import Collection
from uuid import UUID

from accounting_app.durations.array_samples import OF_HISTORY
from accounting_app.models import DurationForecast
from estimation.durations import Basis
from estimation.stages import MOST_LEVELS, EndedStage, StageRatio, stage_ratios
from jobs_app.models import JobDependency
from jobs_app.models.job import JobDependencyQuerySet

EXPECTED = (*OF_HISTORY, Basis.BOOSTED)
"""What a forecast is based on that ended jobs told of: of declared lengths no ratio is learned."""


def read_stage_ratios(needs: JobDependencyQuerySet) -> dict[UUID, StageRatio]:
    """Ratios of the children of these dependencies; one query where there are none, and one more for each level."""
    parents = _ancestors(needs)
    if not parents:
        return {}
    jobs = {parent for of_job in parents.values() for parent in of_job}
    told = DurationForecast.objects.filter(pk__in=jobs, ended_at__isnull=False, submission_basis__in=EXPECTED)
    rows = told.order_by().values_list("job", "gpus", "submission_s", "submission_basis", "seconds")
    ended = {
        job: EndedStage(gpus * forecast_s, basis == Basis.STAGES, gpus * took_s)
        for job, gpus, forecast_s, basis, took_s in rows
        if forecast_s and took_s is not None
    }
    return stage_ratios(parents, ended)


def _ancestors(needs: JobDependencyQuerySet) -> dict[UUID, frozenset[UUID]]:
    """The jobs that each child starts after, and those of these in turn."""
    parents = _parents(needs)
    frontier = _unknown(parents)
    for _ in range(MOST_LEVELS - 1):
        if not frontier:
            break
        parents |= dict.fromkeys(frontier, frozenset()) | _parents(JobDependency.objects.filter(child__in=frontier))
        frontier = _unknown(parents)
    return parents


def _parents(needs: JobDependencyQuerySet) -> dict[UUID, frozenset[UUID]]:
    found: dict[UUID, set[UUID]] = defaultdict(set)
    for child, parent in needs.order_by().values_list("child_id", "parent_id"):
        found[child].add(parent)
    return {child: frozenset(of_child) for child, of_child in found.items()}


def _unknown(parents: dict[UUID, frozenset[UUID]]) -> Collection[UUID]:
    return {parent for of_job in parents.values() for parent in of_job} - parents.keys()
