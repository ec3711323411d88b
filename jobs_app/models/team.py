"""Teams, their members and limits, and API tokens."""

import hashlib
import secrets
from datetime import datetime

from django.conf import settings
from django.contrib.auth.models import User
from django.core.validators import MaxValueValidator, MinValueValidator, RegexValidator
from django.db import models
from django.db.models import Q
from django.utils import timezone

from cluster_app.models import RETIRED_AT, RetiringQuerySet
from cluster_app.storage import Volunteers

LEAST_WEIGHT, MOST_WEIGHT = 1e-6, 1e6
"""Of teams and of jobs: beyond that the share of the smaller is rounding error."""
WEIGHTS_IN_RANGE = "Write a weight from 0.000001 to 1000000."
LEAST_IDLE_MIN, MOST_IDLE_MIN = 10, 525_600
"""GPUs are idle after ten minutes at the earliest; a year in seconds fits the database's integers."""
is_weight = (MinValueValidator(LEAST_WEIGHT, WEIGHTS_IN_RANGE), MaxValueValidator(MOST_WEIGHT, WEIGHTS_IN_RANGE))


class TeamQuerySet(RetiringQuerySet["Team"]):
    """Teams."""

    def visible_to(self, user: User) -> "TeamQuerySet":
        """Teams of which the user is a member; all for administrators."""
        return self.all() if user.is_staff else self.filter(members=user)

    def managed_by(self, user: User) -> "TeamQuerySet":
        """Teams in use that the user manages: those of which they are a member and a lead; all for administrators."""
        return self.current() if user.is_staff else self.current().filter(members=user).filter(leads=user)

    def default_of(self, user: User) -> "Team | None":
        """The team of jobs that name none: that in use of which the user has been a member longest.

        Joining another one changes nothing. Of an administrator who is in none it is the only one there is, if any.
        """
        joined = Team.members.through.objects.filter(user=user, team__retired_at=None).order_by("pk")
        if (first := self.filter(pk=joined.values("team")[:1]).first()) or not user.is_staff:
            return first
        every = list(self.current()[:2])
        return every[0] if len(every) == 1 else None


class Team(models.Model):
    """Group of users that shares the cluster in proportion to its weight."""

    name = models.CharField(
        max_length=60,
        unique=True,
        validators=[RegexValidator(r"\A[\w.-]+\Z", "Use letters, digits, '.', '_' and '-'.")],
    )
    weight = models.FloatField(default=1.0, validators=is_weight, help_text="Its share relative to other teams.")
    members = models.ManyToManyField(settings.AUTH_USER_MODEL, related_name="teams", blank=True)
    leads = models.ManyToManyField(
        settings.AUTH_USER_MODEL,
        related_name="led_teams",
        blank=True,
        help_text="Members who add and remove members, and set limits of members, on the team's page.",
    )
    max_job_weight = models.FloatField(
        default=1.0, validators=is_weight, help_text="Largest weight that one job may have."
    )
    max_gpus = models.PositiveIntegerField("most GPUs at once", null=True, blank=True, help_text="Empty: no limit.")
    max_gpus_per_member = models.PositiveIntegerField(
        "most GPUs at once for one member", null=True, blank=True, help_text="Empty: no limit."
    )
    max_code_mib = models.PositiveIntegerField(
        "most MiB of code", null=True, blank=True, default=10_240, help_text="Of all stored archives; empty: no limit."
    )
    max_files_gib = models.PositiveIntegerField(
        "most GiB of files",
        null=True,
        blank=True,
        help_text="Of jobs that ended: logs, working folders and checkpoints; the oldest are deleted. Empty: the "
        "service's limit (MOTLEY_TEAM_FILES_GIB).",
    )
    idle_gpus_limit_min = models.PositiveIntegerField(
        "minutes of idle GPUs",
        null=True,
        blank=True,
        validators=[
            MinValueValidator(LEAST_IDLE_MIN, "Write 10 minutes or more."),
            MaxValueValidator(MOST_IDLE_MIN, "Write 525600 minutes, a year, or less."),
        ],
        help_text="A job of which no GPU has been in use for so long is stopped gracefully, so that it can save a "
        "checkpoint, and ends as timed out. Empty: its owner is only warned.",
    )
    volunteers = models.CharField(
        "machines that joined",
        max_length=10,
        choices=Volunteers.choices,
        default=Volunteers.TRUSTED,
        help_text="On which of them its jobs may run; a job may allow fewer. Their owners can read what runs there.",
    )
    files_bytes = models.PositiveBigIntegerField(
        default=0, editable=False, help_text="Of its jobs that ended, as added up at the last run of retention."
    )
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    retired_at = models.DateTimeField("retired", null=True, editable=False, help_text=RETIRED_AT)

    objects = TeamQuerySet.as_manager()

    class Meta:
        ordering = ("name",)
        constraints = [
            models.CheckConstraint(
                condition=Q(
                    weight__range=(LEAST_WEIGHT, MOST_WEIGHT), max_job_weight__range=(LEAST_WEIGHT, MOST_WEIGHT)
                ),
                name="team_weights_in_range",
                violation_error_message=WEIGHTS_IN_RANGE,
            ),
            models.CheckConstraint(
                condition=Q(idle_gpus_limit_min=None) | Q(idle_gpus_limit_min__range=(LEAST_IDLE_MIN, MOST_IDLE_MIN)),
                name="team_idle_gpus_limit_in_range",
                violation_error_message="Minutes of idle GPUs are from 10 to 525600, a year.",
            ),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def files_limit_gib(self) -> int | None:
        """Most GiB of the files of its ended jobs: its own limit, else the service's; None: no limit."""
        return (settings.MOTLEY_TEAM_FILES_GIB or None) if self.max_files_gib is None else self.max_files_gib

    @property
    def most_job_weight(self) -> float:
        """Largest weight of one job; the default weight of 1 is always allowed."""
        return max(self.max_job_weight, 1.0)


class ApiTokenQuerySet(models.QuerySet["ApiToken"]):
    def valid(self, now: datetime) -> "ApiTokenQuerySet":
        return self.filter(Q(expires_at=None) | Q(expires_at__gt=now), revoked_at=None)


class ApiToken(models.Model):
    """Bearer token. Only its hash is stored; the text is shown once."""

    class Scope(models.TextChoices):
        READ = "read", "read: look at jobs, nodes and rounds"
        SUBMIT = "submit", "submit: also submit and change jobs"
        ADMIN = "admin", "admin: whatever the user may"

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="api_tokens")
    name = models.CharField(max_length=100)
    scope = models.CharField(max_length=10, choices=Scope.choices, default=Scope.SUBMIT)
    prefix = models.CharField(max_length=12, editable=False, help_text="The first letters, to tell tokens apart.")
    digest = models.CharField(max_length=64, unique=True, editable=False)
    made_by = models.ForeignKey(
        "self",
        null=True,
        blank=True,
        editable=False,
        on_delete=models.SET_NULL,
        help_text="The token that made it: it does not outlive that one.",
    )
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True, editable=False)
    used_at = models.DateTimeField("last used", null=True, blank=True, editable=False)

    objects = ApiTokenQuerySet.as_manager()

    class Meta:
        verbose_name = "API token"
        ordering = ("-id",)

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}…)"

    def is_valid(self, now: datetime) -> bool:
        """Whether the token is neither revoked nor expired."""
        return self.revoked_at is None and (self.expires_at is None or self.expires_at > now)

    def set_text(self) -> str:
        """Generate the secret and return it; only its hash is stored."""
        text = f"mot_{secrets.token_urlsafe(32)}"
        self.prefix, self.digest = text[:10], digest_of(text)
        return text


def digest_of(text: str) -> str:
    """SHA-256 of a token, without salt: a token has 256 random bits."""
    return hashlib.sha256(text.encode()).hexdigest()
