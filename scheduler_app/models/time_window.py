"""Time windows that close nodes to some jobs: maintenance of nodes, and GPUs that are reserved for a team."""

from datetime import datetime, timedelta

from django.conf import settings
from django.db import models
from django.db.models import F, Q
from django.utils import timezone

from cluster_app.models import GpuType, Node, zone_is_known
from jobs_app.models import Team


class TimeWindowQuerySet(models.QuerySet["TimeWindow"]):
    def to_come(self, now: datetime) -> "TimeWindowQuerySet":
        """Present, future and recurring windows, without reservations of retired teams."""
        return (
            self.exclude(team__retired_at__isnull=False)
            .filter(Q(ends_at__gt=now) | ~Q(cron=""))
            .exclude(repeats_until__lt=now - LONGEST)
        )


LONGEST = timedelta(days=31)
"""Of one window."""


class TimeWindow(models.Model):
    """Time window from `begins_at` to `ends_at`, repeated at the times of `cron`, that closes nodes to some jobs."""

    class Kind(models.TextChoices):
        MAINTENANCE = "maintenance", "maintenance: no job runs there"
        RESERVATION = "reservation", "reservation: jobs of one team alone"

    kind = models.CharField(max_length=20, choices=Kind.choices, default=Kind.MAINTENANCE)
    reason = models.CharField(max_length=200, help_text="Shown to the owners of the jobs that wait or are stopped.")
    nodes = models.ManyToManyField(Node, blank=True, related_name="windows", help_text="Of a maintenance.")
    labels = models.JSONField(
        default=dict, blank=True, help_text='Also the nodes that have all of these: {"rack": "r3"}. Of a maintenance.'
    )
    team = models.ForeignKey(Team, null=True, blank=True, on_delete=models.CASCADE, help_text="Of a reservation.")
    gpu_type = models.ForeignKey(
        GpuType,
        null=True,
        blank=True,
        on_delete=models.PROTECT,
        verbose_name="GPU type",
        help_text="Of a reservation.",
    )
    gpus = models.PositiveIntegerField(
        "GPUs",
        null=True,
        blank=True,
        help_text="How many are reserved, in whole nodes: the fewest that have so many.",
    )
    begins_at = models.DateTimeField("from", help_text="In UTC.")
    ends_at = models.DateTimeField("to", help_text="In UTC.")
    cron = models.CharField(
        max_length=100,
        blank=True,
        help_text="When it begins again, for as long: minute, hour, day, month, weekday; 0 2 * * 0 is each Sunday at "
        "02:00. Empty: once.",
    )
    zone = models.CharField(
        "time zone of cron",
        max_length=50,
        default="UTC",
        validators=[zone_is_known],
        help_text="As in the tz database: Europe/Berlin.",
    )
    repeats_until = models.DateTimeField(
        null=True, blank=True, help_text="It does not begin again from then on. Empty: it always does."
    )
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, editable=False, on_delete=models.SET_NULL, related_name="+"
    )

    objects = TimeWindowQuerySet.as_manager()

    class Meta:
        ordering = ("begins_at", "id")
        indexes = [
            models.Index(fields=("ends_at",), name="window_by_end"),
            models.Index(fields=("id",), condition=~Q(cron=""), name="window_recurring"),
        ]
        constraints = [
            models.CheckConstraint(
                condition=Q(ends_at__gt=F("begins_at")),
                name="window_ends_after_it_begins",
                violation_error_message="A window ends after it begins.",
            ),
            models.CheckConstraint(
                condition=~Q(reason=""),
                name="window_has_a_reason",
                violation_error_message="Say why: the owners of jobs that wait or are stopped read it.",
            ),
            models.CheckConstraint(
                condition=Q(kind="maintenance", team=None, gpu_type=None, gpus=None)
                | Q(kind="reservation", team__isnull=False, gpu_type__isnull=False, gpus__gt=0),
                name="window_columns_of_its_kind",
                violation_error_message="A reservation has a team, a GPU type and its GPUs; a maintenance has none.",
            ),
        ]

    def __str__(self) -> str:
        again = ", again and again" if self.cron else ""
        return f"{self.kind} from {self.begins_at:%F %H:%M} to {self.ends_at:%F %H:%M} UTC{again}: {self.reason}"
