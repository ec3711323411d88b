"""Recipes: job files of a team with parameters, in versions."""

from django.conf import settings
from django.contrib.auth.models import User
from django.db import models
from django.db.models import F, Q
from django.utils import timezone

from jobs_app.models.code_archive import CodeArchive
from jobs_app.models.team import Team


class RecipeQuerySet(models.QuerySet["Recipe"]):
    def visible_to(self, user: User) -> "RecipeQuerySet":
        """Recipes of the user's teams; staff see all."""
        return self if user.is_staff else self.filter(team__in=user.teams.order_by().values("pk"))

    def of_current_teams(self) -> "RecipeQuerySet":
        """Recipes of teams that may submit."""
        return self.filter(team__retired_at=None)


class Recipe(models.Model):
    """A job file of a team, by which its members submit jobs with values for its parameters."""

    class Editors(models.TextChoices):
        MEMBERS = "members", "members of the team"
        LEADS = "leads", "leads of the team"

    team = models.ForeignKey(Team, on_delete=models.PROTECT, related_name="recipes", db_index=False)
    name = models.CharField(max_length=100)
    description = models.CharField(max_length=500, blank=True)
    editors = models.CharField(max_length=10, choices=Editors.choices, default=Editors.MEMBERS)
    version = models.PositiveIntegerField(default=1, help_text="Number of its latest version.")
    submissions = models.PositiveBigIntegerField(default=0, help_text="How often it was submitted; an array is one.")
    created_at = models.DateTimeField(default=timezone.now)
    changed_at = models.DateTimeField(default=timezone.now)

    objects = RecipeQuerySet.as_manager()

    class Meta:
        ordering = ("name", "id")
        constraints = [
            models.UniqueConstraint(fields=("team", "name"), name="recipe_once_per_team"),
            models.CheckConstraint(condition=~Q(name=""), name="recipe_has_a_name"),
            models.CheckConstraint(condition=Q(editors__in=("members", "leads")), name="recipe_editors_known"),
        ]

    def __str__(self) -> str:
        return self.name


class RecipeVersionQuerySet(models.QuerySet["RecipeVersion"]):
    def latest_ones(self) -> "RecipeVersionQuerySet":
        """The latest version of each recipe."""
        return self.filter(number=F("recipe__version"))


class RecipeVersion(models.Model):
    """Spec and parameters of a recipe from one change to the next."""

    recipe = models.ForeignKey(Recipe, on_delete=models.CASCADE, related_name="versions", db_index=False)
    number = models.PositiveIntegerField()
    spec = models.JSONField(help_text="Spec of its jobs, without their team, with ${{ name }} where a parameter is.")
    parameters = models.JSONField(default=list, help_text="In the order in which they are asked for.")
    code = models.ForeignKey(
        CodeArchive,
        null=True,
        on_delete=models.PROTECT,
        related_name="recipe_versions",
        help_text="Of its spec: retention keeps that of the latest version.",
    )
    author = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="recipe_versions"
    )
    created_at = models.DateTimeField(default=timezone.now)

    objects = RecipeVersionQuerySet.as_manager()

    class Meta:
        ordering = ("-number",)
        constraints = [models.UniqueConstraint(fields=("recipe", "number"), name="recipe_version_once")]

    def __str__(self) -> str:
        return f"{self.recipe_id} version {self.number}"
