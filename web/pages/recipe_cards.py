"""Cards of recipes: parameters, how often each ran, and on which GPUs last."""

from collections.abc import Sequence
from dataclasses import dataclass

from django.contrib.auth.models import User

from jobs_app.models import Recipe, RecipeVersion
from jobs_app.recipes.usage import LastJob, last_jobs, latest_versions

ON_NEW_JOB = 12
"""Cards on *New job*: the most used ones."""


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
