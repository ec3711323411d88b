"""Agents of machines that join with a token, and the messages between them and the service."""

from datetime import datetime

from django.contrib.auth.models import User
from django.db import models
from django.db.models import Q
from django.db.models.functions import Cast
from django.utils import timezone

from cluster_app.models import SUSPECT_AFTER, Engine
from connections_app.models.standing import RIGHTS, Rights, Standing
from jobs_app.models import Team

LONG = ("findings", "answers", "gpu_readings")
"""Columns of JSON that few need: to read them of 200 servers takes half of a turn of the engines' loop."""
OF_RANKS = (
    *("attempt", "rank", "ranks", "ready_at", "go_at", "cause", "cause_note", "job", "launch", "delivered_at"),
    *("stop_reason", "report", "handed_over", "forgotten"),
    *(f"agent__{name}" for name in ("name", "site", "told", "heard_at")),
)
"""What turns of the engines' loop read of attempts and their agents: with the reports of 200 nodes it took twice as
long."""


OF_REPORTS = ("name", "site", "engine", "joined_at", "told", "heard_at", "revoked_at", "fault", "fault_at")


class AgentQuerySet(models.QuerySet["Agent"]):
    def short(self) -> "AgentQuerySet":
        """Without the long columns, which are read when they are asked for."""
        return self.defer(*LONG)

    def reporting(self) -> "AgentQuerySet":
        """With the columns of which reports of nodes are made alone; the machine's own report is left as text."""
        return self.only(*OF_REPORTS).annotate(report_text=Cast("node_report", models.TextField()))

    def visible_to(self, user: User) -> "AgentQuerySet":
        """Machines of the user's teams; staff see all."""
        return self if user.is_staff else self.filter(team__in=user.teams.order_by().values("pk"))


class Agent(models.Model):
    """One machine that may join, or has joined. Of its tokens only the hashes are stored."""

    class State(models.TextChoices):
        """State of a machine that may join or has joined."""

        INVITED = "invited", "has not joined yet"
        EXPIRED = "expired", "its join token has expired"
        CONNECTED = "connected", "connected"
        SILENT = "silent", "not heard"
        LEFT = "left", "has left"
        REVOKED = "revoked", "revoked"

    name = models.CharField(max_length=40, unique=True)
    join_digest = models.CharField(max_length=64, unique=True, editable=False)
    join_expires_at = models.DateTimeField()
    join_trusted = models.BooleanField(default=False, help_text="Whether the machine that joins will be trusted.")
    trusted = models.BooleanField(default=False, help_text="Whether the machine that has joined is.")
    site = models.BooleanField(
        default=False, editable=False, help_text="Whether it is a server of the site, not a volunteer's machine."
    )
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    team = models.ForeignKey(
        Team,
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="agents",
        help_text="Whose machine it is: its members see it on the page Cluster. It runs jobs of all teams.",
    )
    engine = models.ForeignKey(
        Engine, null=True, blank=True, editable=False, on_delete=models.PROTECT, related_name="agents"
    )
    digest = models.CharField(max_length=64, blank=True, editable=False, help_text="Empty until it has joined.")
    machine = models.CharField(max_length=64, blank=True, editable=False, help_text="Digest of the machine's id.")
    joined_at = models.DateTimeField(
        null=True, blank=True, editable=False, help_text="When the join token was used; it cannot be used again."
    )
    revoked_at = models.DateTimeField(null=True, blank=True, editable=False)
    left_at = models.DateTimeField(null=True, blank=True, editable=False)
    node_report = models.JSONField(default=dict, blank=True, editable=False)
    told = models.PositiveBigIntegerField(default=0, editable=False, help_text="Messages so far.")
    heard_at = models.DateTimeField("last heard", null=True, blank=True, editable=False)

    heard = models.CharField(max_length=32, blank=True, editable=False, help_text="Mark of the last answer it has had.")
    answers = models.JSONField(default=list, blank=True, editable=False, help_text="Marks of the answers since then.")

    fault = models.CharField(
        max_length=500, blank=True, editable=False, help_text="Why it was not ready for its last gang."
    )
    fault_at = models.DateTimeField(null=True, blank=True, editable=False)

    release = models.CharField(
        max_length=40, blank=True, editable=False, help_text="Of the program that its agent runs."
    )
    program = models.CharField(
        max_length=12, blank=True, editable=False, help_text="Digest of the program; empty: it runs from sources."
    )
    python = models.CharField("Python", max_length=20, blank=True, editable=False)
    findings = models.JSONField(default=list, blank=True, editable=False, help_text="What it found on its server.")
    checked_at = models.DateTimeField("last checked", null=True, blank=True, editable=False)
    job_uid = models.BigIntegerField(
        null=True, editable=False, help_text="Number of the account of jobs on the server; empty: it has not said it."
    )
    update_to = models.CharField(
        max_length=12, blank=True, editable=False, help_text="Program to which it is told to change; empty: none."
    )
    update_at = models.DateTimeField(null=True, blank=True, editable=False, help_text="When it was told so.")
    update_fault = models.CharField(
        max_length=500, blank=True, editable=False, help_text="Why its last change to another program was taken back."
    )
    update_tries = models.PositiveIntegerField(
        default=0, editable=False, help_text="How often an administrator had it try a change that failed again."
    )

    gpu_readings = models.JSONField(default=list, blank=True, editable=False)
    gpus_read = models.PositiveBigIntegerField(default=0, editable=False, help_text="Messages with readings of GPUs.")

    objects = AgentQuerySet.as_manager()

    class Meta:
        ordering = ("name",)
        constraints = [
            models.CheckConstraint(
                condition=Q(digest="", engine=None) | (~Q(digest="") & Q(engine__isnull=False)),
                name="agent_joined_with_token_and_engine",
            ),
            models.CheckConstraint(condition=Q(site=False) | Q(join_trusted=True), name="agent_of_site_is_trusted"),
            models.UniqueConstraint(fields=("digest",), condition=~Q(digest=""), name="agent_token_once"),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def rights(self) -> Rights:
        """What it may do, by whose machine it is."""
        return RIGHTS[Standing.of(site=self.site, trusted=self.trusted)]

    def state_at(self, now: datetime) -> State:
        """One that waits for another machine is what the machine of before does."""
        if self.revoked_at is not None:
            return self.State.REVOKED
        if self.engine_id is None:
            return self.State.INVITED if now < self.join_expires_at else self.State.EXPIRED
        if self.left_at is not None:
            return self.State.LEFT
        is_heard = self.heard_at is not None and now - self.heard_at <= SUSPECT_AFTER
        return self.State.CONNECTED if is_heard else self.State.SILENT


class AgentAttempt(models.Model):
    """An attempt at an agent: its commands and reports. Of a gang over servers, there is one for each of these.

    Keyed by the attempt's number at its engine, and the rank of the server.
    """

    class Cause(models.TextChoices):
        """How a rank ended its gang."""

        FAILED = "failed", "it ended badly"
        SILENT = "silent", "its server is not heard"
        NOT_READY = "not_ready", "it was not ready in time, or could not be prepared"

    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="attempts")
    attempt = models.BigIntegerField()
    rank = models.PositiveSmallIntegerField(default=0)
    ranks = models.PositiveSmallIntegerField(default=1, help_text="Servers of its gang.")
    ready_at = models.DateTimeField(null=True, editable=False, help_text="When its server said that it is prepared.")
    go_at = models.DateTimeField(null=True, editable=False, help_text="When all were, and the ranks were started.")
    cause = models.CharField(
        max_length=20, choices=Cause.choices, blank=True, editable=False, help_text="Of the rank that ended its gang."
    )
    cause_note = models.CharField(max_length=500, blank=True, editable=False)
    job = models.UUIDField()
    launch = models.TextField(blank=True, editable=False, help_text="Encrypted; empty once the agent has it.")
    delivered_at = models.DateTimeField(null=True, editable=False)
    stop_reason = models.CharField(max_length=20, blank=True, editable=False)
    stop_grace_s = models.FloatField(default=0, editable=False)
    report = models.JSONField(null=True, editable=False)
    handed_over = models.BooleanField(default=False, editable=False)
    forgotten = models.BooleanField(
        default=False, editable=False, help_text="The agent was told to remove its files, or never had it."
    )
    kept = models.BooleanField(
        default=False, editable=False, help_text="Its job ended there, and its server keeps the job's folder."
    )
    kept_bytes = models.BigIntegerField(null=True, editable=False, help_text="Of that folder; empty: not measured yet.")

    class Meta:
        indexes = [
            models.Index(fields=("agent",), name="agent_attempt_kept", condition=Q(forgotten=False)),
            models.Index(fields=("job", "agent"), name="agent_attempt_job_folder", condition=Q(kept=True)),
        ]
        constraints = [
            models.UniqueConstraint(fields=("attempt", "rank"), name="agent_attempt_rank_once"),
            models.UniqueConstraint(fields=("attempt", "agent"), name="agent_attempt_server_once"),
            models.UniqueConstraint(fields=("attempt",), condition=~Q(cause=""), name="agent_attempt_one_cause"),
            models.CheckConstraint(
                condition=Q(cause__in=("", "failed", "not_ready", "silent")), name="agent_attempt_cause_known"
            ),
            models.CheckConstraint(condition=Q(rank__lt=models.F("ranks")), name="agent_attempt_rank_of_gang"),
        ]

    def __str__(self) -> str:
        return f"attempt {self.attempt} at {self.agent_id}"
