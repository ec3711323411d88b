"""Sweeps: searches for good hyperparameters, and their trials, each of which is an ordinary job."""

from django.conf import settings
from django.contrib.auth.models import User
from django.db import models
from django.db.models import Q
from django.utils import timezone

from jobs_app.models.code_archive import CodeArchive
from jobs_app.models.team import Team

LARGEST_SWEEP = 2_000
"""Trials."""


class SweepQuerySet(models.QuerySet["Sweep"]):
    def visible_to(self, user: User) -> "SweepQuerySet":
        """Sweeps of the user's teams; staff see all."""
        return self if user.is_staff else self.filter(team__in=user.teams.order_by().values("pk"))

    def unfinished(self) -> "SweepQuerySet":
        return self.filter(state__in=Sweep.UNFINISHED)


class Sweep(models.Model):
    """A search over hyperparameters: the spec of its jobs, the space, how trials are chosen and which are stopped."""

    class State(models.TextChoices):
        RUNNING = "running", "running"
        STOPPING = "stopping", "stopping"
        STOPPED = "stopped", "stopped"
        FINISHED = "finished", "finished"

    UNFINISHED = (State.RUNNING, State.STOPPING)

    class Method(models.TextChoices):
        GRID = "grid", "grid"
        RANDOM = "random", "random"
        BAYES = "bayes", "bayes"
        POPULATION = "population", "population"

    class Goal(models.TextChoices):
        MINIMIZE = "minimize", "minimize"
        MAXIMIZE = "maximize", "maximize"

    team = models.ForeignKey(Team, on_delete=models.PROTECT, related_name="sweeps")
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="sweeps")
    code = models.ForeignKey(CodeArchive, null=True, blank=True, on_delete=models.PROTECT, related_name="sweeps")
    name = models.CharField(max_length=80, help_text="Once per team; its trials are named by it.")
    spec = models.JSONField(help_text="Spec of the jobs as it was written, without the team.")
    method = models.CharField(max_length=10, choices=Method.choices)
    metric = models.CharField(max_length=64)
    goal = models.CharField(max_length=10, choices=Goal.choices)
    parameters = models.JSONField(help_text="Name → values, or the least and the greatest.")
    early_terminate = models.JSONField(
        null=True, blank=True, help_text="Rungs at which only the best go on; null: every trial runs to its end."
    )
    population = models.JSONField(
        null=True, blank=True, help_text="Size, interval and exploration of population-based training; null: none."
    )
    generation = models.PositiveIntegerField(default=0, help_text="Marks of the population that are decided.")
    run_cap = models.PositiveIntegerField(help_text="Most trials.")
    at_a_time = models.PositiveIntegerField(help_text="Most trials that run or wait for GPUs.")
    max_failed = models.PositiveIntegerField(help_text="Failed trials after which it is stopped.")
    seed = models.PositiveBigIntegerField()
    state = models.CharField(max_length=10, choices=State.choices, default=State.RUNNING)
    message = models.CharField(max_length=500, blank=True, help_text="Why it was stopped.")
    created_at = models.DateTimeField(default=timezone.now)
    ended_at = models.DateTimeField(null=True, blank=True)
    advanced_at = models.DateTimeField(default=timezone.now, help_text="When the scheduler last looked after it.")

    objects = SweepQuerySet.as_manager()

    class Meta:
        ordering = ("-id",)
        indexes = [
            models.Index(
                fields=("advanced_at",), condition=Q(state__in=("running", "stopping")), name="sweep_to_advance"
            )
        ]
        constraints = [
            models.UniqueConstraint(fields=("team", "name"), name="sweep_name_once_per_team"),
            models.CheckConstraint(
                condition=Q(run_cap__gte=1, run_cap__lte=LARGEST_SWEEP, at_a_time__gte=1), name="sweep_has_trials"
            ),
            models.CheckConstraint(
                condition=Q(state__in=("running", "stopping"), ended_at=None)
                | Q(state__in=("stopped", "finished"), ended_at__isnull=False),
                name="sweep_that_ended_has_its_time",
            ),
        ]

    def __str__(self) -> str:
        return self.name


class SweepTrial(models.Model):
    """A trial: its hyperparameters, the job that trains with them, and its results at the rungs or marks."""

    class State(models.TextChoices):
        RUNNING = "running", "running"
        RESTING = "resting", "held"
        SUCCEEDED = "succeeded", "succeeded"
        STOPPED_EARLY = "stopped_early", "stopped early"
        REPLACED = "replaced", "replaced"
        FAILED = "failed", "failed"
        CANCELLED = "cancelled", "cancelled"

    OPEN = (State.RUNNING, State.RESTING)

    sweep = models.ForeignKey(Sweep, on_delete=models.CASCADE, related_name="trials", db_index=False)
    number = models.PositiveIntegerField()
    job_id = models.UUIDField(help_text="It may be in the archive.")
    params = models.JSONField()
    state = models.CharField(max_length=15, choices=State.choices, default=State.RUNNING)
    values = models.JSONField(
        default=list,
        blank=True,
        help_text="Of the metric at each rung or mark that it has reached, a copy's first ones of its source.",
    )
    target = models.PositiveIntegerField(default=0, help_text="Number of the rung or mark to which it may run.")
    value = models.FloatField(null=True, blank=True, help_text="Of the metric at its end, or where it was stopped.")
    source = models.PositiveIntegerField(
        null=True, blank=True, help_text="Number of the trial with whose weights it began; null: with none."
    )
    source_step = models.PositiveBigIntegerField(null=True, blank=True, help_text="Step of these weights.")
    replaces = models.PositiveIntegerField(
        null=True, blank=True, help_text="Number of the trial whose place in the population it took."
    )
    born = models.PositiveIntegerField(default=0, help_text="Marks of the population that were decided before it.")
    changes = models.JSONField(
        default=dict, blank=True, help_text="Hyper-parameters in which it differs from its source → the source's value."
    )
    copies_fail_since = models.DateTimeField(
        null=True, blank=True, help_text="When its weights could first not be copied; null: no copy of it fails."
    )
    message = models.CharField(max_length=300, blank=True)
    created_at = models.DateTimeField(default=timezone.now)
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("number",)
        indexes = [models.Index(fields=("job_id",), name="sweep_trial_by_job")]
        constraints = [
            models.UniqueConstraint(fields=("sweep", "number"), name="sweep_trial_once_per_number"),
            models.UniqueConstraint(fields=("sweep", "replaces"), name="sweep_trial_replaced_once"),
        ]

    def __str__(self) -> str:
        return f"{self.sweep_id} #{self.number}"

    @property
    def is_open(self) -> bool:
        return self.state in self.OPEN

    @property
    def own_values(self) -> list[float | None]:
        """Those after the marks at which its source was compared before it began."""
        values: list[float | None] = self.values[self.born :]
        return values
