"""Budget of a team: the work that its jobs may do in each calendar period."""

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import Q

from jobs_app.models.team import Team

LEAST_GPU_HOURS, MOST_GPU_HOURS = 0.001, 1e9
OUT_OF_RANGE = "Write from 0.001 to 1000000000 GPU-hours; without a limit, delete the budget."


class Budget(models.Model):
    """Work of a team per period, in reference GPU-hours: weighted by speed, an hour on the average GPU counts as 1."""

    class Period(models.TextChoices):
        """Calendar period of UTC, in which the service counts days."""

        WEEK = "week", "week, from Monday"
        MONTH = "month", "month"
        QUARTER = "quarter", "quarter, from January, April, July and October"

    class Kind(models.TextChoices):
        """Consequence when the budget is used up."""

        SOFT = "soft", "soft: the team's weight falls"
        HARD = "hard", "hard: its waiting jobs wait for the next period"

    team = models.OneToOneField(Team, on_delete=models.CASCADE, primary_key=True, related_name="budget")
    gpu_hours = models.FloatField(
        "reference GPU-hours",
        validators=[
            MinValueValidator(LEAST_GPU_HOURS, OUT_OF_RANGE),
            MaxValueValidator(MOST_GPU_HOURS, OUT_OF_RANGE),
        ],
        help_text="Weighted by speed: an hour on the cluster's average GPU counts as one.",
    )
    period = models.CharField(max_length=10, choices=Period.choices, default=Period.MONTH, help_text="Of UTC.")
    kind = models.CharField(max_length=10, choices=Kind.choices, default=Kind.SOFT)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(gpu_hours__range=(LEAST_GPU_HOURS, MOST_GPU_HOURS)),
                name="budget_in_range",
                violation_error_message=OUT_OF_RANGE,
            ),
            models.CheckConstraint(condition=Q(period__in=("week", "month", "quarter")), name="budget_period_known"),
            models.CheckConstraint(condition=Q(kind__in=("soft", "hard")), name="budget_kind_known"),
        ]

    def __str__(self) -> str:
        return f"{self.gpu_hours:g} reference GPU-hours a {self.period} of {self.team}, {self.kind}"
