"""How recipes were used: the last job of each that has started, with its GPUs and its measured rate; their cards."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.contrib.auth.models import User
from django.db.models import OuterRef, Prefetch, Subquery

from jobs_app.models import Attempt, Job, Recipe, RecipeVersion

ON_NEW_JOB = 12
"""Cards on *New job*: the most used ones."""


@dataclass(frozen=True)
class LastJob:
    """The newest job of a recipe that has started."""

    id: UUID
    state: str
    gpu_type: str
    gpu_count: int
    rate: float | None
    """Steps/s, as measured; None: it has not reported two steps."""
    started_at: datetime | None


def last_jobs(recipes: Sequence[Recipe]) -> dict[int, LastJob]:
    """The last job of each recipe: three queries, each row found by the index of recipes."""
    if not recipes:
        return {}
    started = Job.objects.filter(recipe=OuterRef("pk"), started_at__isnull=False).order_by("-pk").values("pk")[:1]
    rows = Recipe.objects.filter(pk__in=[one.pk for one in recipes]).order_by()
    ids = dict(rows.annotate(last=Subquery(started)).values_list("pk", "last"))
    attempts = Attempt.objects.live_or_latest().select_related("gpu_type").order_by("number")
    wanted = Job.objects.filter(pk__in=[pk for pk in ids.values() if pk])
    jobs = {job.pk: job for job in wanted.prefetch_related(Prefetch("attempts", attempts))}
    return {recipe: made for recipe, pk in ids.items() if pk in jobs and (made := _shown(jobs[pk]))}


def latest_versions(recipes: Sequence[Recipe]) -> dict[int, RecipeVersion]:
    """The latest version of each recipe: one query."""
    found = RecipeVersion.objects.latest_ones().filter(recipe__in=recipes).select_related("author")
    return {one.recipe_id: one for one in found} if recipes else {}


def _shown(job: Job) -> LastJob | None:
    attempts = list(job.attempts.all())
    if not attempts:
        return None
    # A preempted job's claim has no rate yet: that of the attempt before is as good.
    last = next((one for one in reversed(attempts) if one.measured_rate), attempts[-1])
    return LastJob(job.pk, job.state, last.gpu_type.name, last.gpu_count, last.measured_rate, job.started_at)


@dataclass(frozen=True)
class Card:
    """A recipe with its parameters and its last job."""

    recipe: Recipe
    version: RecipeVersion
    last: LastJob | None


def cards(recipes: Sequence[Recipe]) -> list[Card]:
    """Cards of the recipes: as many queries for one as for all."""
    versions, last = latest_versions(recipes), last_jobs(recipes)
    return [Card(one, versions[one.pk], last.get(one.pk)) for one in recipes]


def cards_of(user: User) -> list[Card]:
    """Cards of the most used recipes of the user's own teams."""
    mine = Recipe.objects.of_current_teams().filter(team__members=user).select_related("team")
    return cards(list(mine.order_by("-submissions", "name", "pk")[:ON_NEW_JOB]))
