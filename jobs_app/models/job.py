"""Jobs with their state and reason, job arrays, dependencies and tags."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from shlex import quote
from typing import Any
from uuid import UUID

from django.conf import settings
from django.contrib.auth.models import User
from django.db import connection, models
from django.db.models import F, Q
from django.utils import timezone
from uuid_utils.compat import uuid7

from cluster_app.replica_size import GpusPerReplica
from cluster_app.storage import Volunteers
from estimation.training_work import TrainingWork
from jobs_app.models.code_archive import CodeArchive
from jobs_app.models.recipe import Recipe
from jobs_app.models.recurring_job import RecurringJob
from jobs_app.models.team import Team

LARGEST_ARRAY = 10_000
TAIL_DIGITS = 8


class IdTail(models.Func):
    """Last eight hexadecimal digits of a UUID. The number is a literal: with a parameter no index would be used."""

    arity = 1
    template = f"substr(%(expressions)s, -{TAIL_DIGITS})"
    output_field = models.CharField(max_length=TAIL_DIGITS)

    def as_postgresql(self, compiler: Any, connection: Any, **context: Any) -> Any:
        return self.as_sql(compiler, connection, template=f"right(%(expressions)s::text, {TAIL_DIGITS})", **context)


class Reason(models.TextChoices):
    """Why a job is in its state. Reasons for waiting come first, structural ones before capacity."""

    HELD = "held", "held"
    DEPENDENCY = "dependency", "waits for another job"
    BEGIN_TIME = "begin_time", "waits for its begin time"
    BUDGET = "budget", "budget of the team used up"
    NO_SUCH_GPU = "no_such_gpu", "no such GPU"
    GPU_MEMORY_TOO_SMALL = "gpu_memory_too_small", "GPUs have too little memory"
    GANG_TOO_LARGE = "gang_too_large", "gang too large"
    NO_STORAGE = "no_storage", "storage missing"
    TEAM_LIMIT = "team_limit", "team's GPU limit reached"
    MEMBER_LIMIT = "member_limit", "member's GPU limit reached"
    ARRAY_LIMIT = "array_limit", "array's limit of tasks at a time reached"
    QUOTA = "quota", "quota on a GPU type reached"
    NO_HEALTHY_NODE = "no_healthy_node", "no node in service"
    MAINTENANCE = "maintenance", "nodes in maintenance"
    RESERVED = "reserved", "GPUs reserved for a team"
    INSUFFICIENT_GPUS = "insufficient_gpus", "not enough free GPUs"
    FRAGMENTED = "fragmented", "free GPUs are fragmented"
    OUTBID = "outbid", "outbid by other jobs"
    AWAITING_RELEASE = "awaiting_release", "GPUs not yet released"
    STARTING = "starting", "starting processes"
    SITE_QUEUE = "site_queue", "waiting in the site's own queue"
    NEXT_ROUND = "next_round", "next round"
    SET_ASIDE = "set_aside", "set aside after an error"
    PREEMPTED = "preempted", "preempted"
    NODE_DRAINED = "node_drained", "node drained"
    NODE_LOST = "node_lost", "node lost"
    RETRYING = "retrying", "trying again"
    REQUEUED = "requeued", "requeued"
    CANCELLED_BY_USER = "cancelled_by_user", "cancelled"
    DEPENDENCY_FAILED = "dependency_failed", "a job it needs did not succeed"
    TIME_LIMIT = "time_limit", "time limit reached"
    EXIT_CODE = "exit_code", "exited with an error"


class JobArray(models.Model):
    """Job array: jobs submitted together, with one spec and an index each."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    start = models.PositiveIntegerField()
    end = models.PositiveIntegerField()
    indices = models.JSONField(null=True, blank=True, help_text="Where they are not all from start to end.")
    at_a_time = models.PositiveIntegerField(null=True, blank=True)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(end__gte=F("start"), end__lt=F("start") + LARGEST_ARRAY), name="array_has_members"
            ),
            models.CheckConstraint(condition=Q(at_a_time=None) | Q(at_a_time__gt=0), name="array_moves_on"),
        ]

    def __str__(self) -> str:
        return f"{self.id} [{self.start}-{self.end}]"

    @property
    def all_indices(self) -> Sequence[int]:
        return self.indices or range(self.start, self.end + 1)


LONGEST_PAUSE = timedelta(minutes=5)
"""Between two attempts of a job."""


def held_text(job: str, by: str = "") -> str:
    """Who holds the job of this name, and how it is released."""
    who = f"Held {by}" if by else "Held"
    return f"{who}; release it with `motley release {quote(job)}`, or on its page."[:500]


def begin_time_text(begin_time: datetime) -> str:
    """Message of a job that waits for its begin time."""
    return f"It is not started before {begin_time.astimezone(UTC):%F %H:%M:%S} UTC, its begin time."


def arrival_of(created_at: datetime, begin_time: datetime | None) -> datetime:
    """When a job could first start, from which its age counts: at its submission, or its later begin time."""
    return max(created_at, begin_time) if begin_time else created_at


def steps_in_all(declared: int | None, reported: int | None, *, tuned: bool) -> int | None:
    """Steps of a job as declared, else as reported; reported first where its batch, and so its steps, may change."""
    return (reported or declared) if tuned else (declared or reported)


class JobQuerySet(models.QuerySet["Job"]):
    def update(self, **columns: Any) -> int:
        """Also set `updated_at`, which `auto_now` does only in `save()`: clients poll for changed jobs.

        Not a trigger, so that there is one rule for both databases; `bulk_update` calls this method, too.
        """
        return super().update(**{"updated_at": timezone.now(), **columns})

    def visible_to(self, user: User) -> "JobQuerySet":
        """Jobs of the user's teams; staff see all jobs."""
        if user.is_staff:
            return self
        if connection.vendor == "postgresql":  # told which teams, it plans by how many jobs those have
            return self.filter(team__in=list(user.teams.order_by().values_list("pk", flat=True)))
        # Not a join: SQLite would then collect and sort all of the teams' jobs for one page of the newest.
        mine = Team.members.through._default_manager.filter(team=models.OuterRef("team"), user=user)
        return self.filter(models.Exists(mine))

    def one_per_array(self) -> "JobQuerySet":
        """The job with the highest index of each array, and all jobs that are in no array."""
        later = self.order_by().filter(array=models.OuterRef("array"), array_index__gt=models.OuterRef("array_index"))
        return self.filter(~models.Exists(later))

    def queued(self) -> "JobQuerySet":
        return self.filter(state=Job.State.QUEUED)

    def active(self) -> "JobQuerySet":
        """Jobs that hold GPUs or are about to."""
        return self.filter(state__in=Job.ACTIVE)

    def unfinished(self) -> "JobQuerySet":
        return self.filter(state__in=(Job.State.QUEUED, *Job.ACTIVE))

    def schedulable(self, now: datetime, *, begin_by: datetime | None = None) -> "JobQuerySet":
        """Queued jobs that are neither held nor waiting for a dependency, their begin time or a pause to end.

        `begin_by`: also those whose begin time comes until then.

        A pause that would end later than the longest one began by a clock that was set back since, and is over.
        """
        unmet = JobDependency.objects.filter(child=models.OuterRef("pk")).unmet()
        eligible = Q(eligible_at=None) | Q(eligible_at__lte=now) | Q(eligible_at__gt=now + LONGEST_PAUSE)
        begun = Q(begin_time=None) | Q(begin_time__lte=begin_by or now)
        return self.queued().filter(eligible, begun, held=False).filter(~models.Exists(unmet))

    def eligible_between(self, since: datetime, now: datetime) -> "JobQuerySet":
        """Queued jobs whose pause has ended in this time, or whose begin time has come."""
        paused, waited = Q(eligible_at__gt=since, eligible_at__lte=now), Q(begin_time__gt=since, begin_time__lte=now)
        return self.queued().filter(paused | waited)


class Job(models.Model):
    """One training job. Sizes are in MiB, times in seconds; lists and maps are as in the job's spec."""

    class State(models.TextChoices):
        QUEUED = "queued", "queued"
        STARTING = "starting", "starting"
        RUNNING = "running", "running"
        STOPPING = "stopping", "stopping"
        SUCCEEDED = "succeeded", "succeeded"
        FAILED = "failed", "failed"
        CANCELLED = "cancelled", "cancelled"
        TIMED_OUT = "timed_out", "timed out"

    ACTIVE = (State.STARTING, State.RUNNING, State.STOPPING)
    FINAL = (State.SUCCEEDED, State.FAILED, State.CANCELLED, State.TIMED_OUT)

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    name = models.CharField(max_length=100)
    # A foreign key has no index of its own where a longer one begins with it: each costs every update of a row. Not so
    # where a partial unique index is on that column alone: Django would drop that with the plain one (`AlterField`).
    team = models.ForeignKey(Team, on_delete=models.PROTECT, related_name="jobs", db_index=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="jobs", db_index=False)
    array = models.ForeignKey(
        JobArray, null=True, blank=True, on_delete=models.CASCADE, related_name="jobs", db_index=False
    )
    array_index = models.PositiveIntegerField(null=True, blank=True)
    recurring = models.ForeignKey(
        RecurringJob,
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="jobs",
        db_index=False,
        help_text="The recurring job of which it is a run.",
    )
    recipe = models.ForeignKey(
        Recipe,
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="jobs",
        db_index=False,
        help_text="The recipe by which it was submitted.",
    )
    recipe_version = models.PositiveIntegerField(null=True, blank=True)
    continues = models.UUIDField(
        null=True, blank=True, help_text="Job with whose checkpoint it began; that may be in the archive."
    )
    continues_from = models.CharField(
        max_length=255, blank=True, default="", help_text="Name of that checkpoint; empty: all that the job had saved."
    )
    continues_step = models.PositiveBigIntegerField(null=True, blank=True, help_text="Step at which it was made.")

    command = models.JSONField(help_text="A string for the shell, or a list that is executed as it is.")
    workdir = models.CharField(max_length=500, blank=True)
    code = models.ForeignKey(
        CodeArchive, null=True, blank=True, on_delete=models.PROTECT, related_name="jobs", db_index=False
    )
    setup = models.TextField(blank=True, help_text="Makes the environment before the job starts; run by /bin/sh.")
    image = models.CharField(
        max_length=500, blank=True, default="", help_text="Image of the container in which it runs; empty: none."
    )
    volunteers = models.CharField(
        max_length=10,
        choices=Volunteers.choices,
        default=Volunteers.TRUSTED,
        help_text="On which machines that joined it may run.",
    )
    env = models.JSONField(default=dict, blank=True)
    mounts = models.JSONField(default=list, blank=True, help_text="Names of storage that its nodes must have.")
    secrets = models.JSONField(default=list, blank=True, help_text="Names of secrets of its owner or its team.")
    gpus_min = models.PositiveIntegerField()
    gpus_max = models.PositiveIntegerField()
    gpus_per_replica = models.JSONField(
        default=dict, blank=True, help_text="GPUs of one replica: a number, or one for each GPU type; empty: one GPU."
    )
    gpu_types = models.JSONField(default=list, blank=True)
    gpu_memory_mib = models.PositiveIntegerField(default=0)
    cpus_per_gpu = models.PositiveIntegerField(default=0)
    memory_per_gpu_mib = models.PositiveIntegerField(default=0)
    sensitivity = models.JSONField(
        default=dict, blank=True, help_text="What CPUs and memory do for its throughput, as declared; empty: unknown."
    )
    workload = models.CharField(max_length=200)
    rates = models.JSONField(default=dict, blank=True, help_text="Declared steps/s: GPU type → GPUs → rate.")
    batch_size = models.JSONField(
        default=dict, blank=True, help_text="Limits between which the batch is tuned; empty: the job's own affair."
    )
    noise_scale = models.FloatField(
        null=True,
        blank=True,
        help_text="Of its gradient, as last reported: a sample's variance over the squared norm; empty: not reported.",
    )
    noise_batch = models.PositiveIntegerField(
        null=True, blank=True, editable=False, help_text="Samples of a step, as last reported."
    )
    worth_done = models.FloatField(
        null=True,
        blank=True,
        editable=False,
        help_text="Steps of the initial batch that its steps were worth, summed up by report; empty: not tuned.",
    )
    total_steps = models.PositiveBigIntegerField(null=True, blank=True)
    reported_total_steps = models.PositiveBigIntegerField(
        null=True, blank=True, help_text="As it says itself while it runs; counts where `total_steps` is not given."
    )
    grace_s = models.PositiveIntegerField(default=60)
    restore_s = models.FloatField(default=30)
    preemptible = models.BooleanField(default=True)
    uneven_gang = models.BooleanField(default=False)
    slurm_variables = models.BooleanField(
        default=False, help_text="It finds SLURM_JOB_ID, SLURM_ARRAY_TASK_ID and others in its environment."
    )
    weight = models.FloatField(default=1.0)
    begin_time = models.DateTimeField(null=True, blank=True, help_text="It is not started before.")
    deadline = models.DateTimeField(null=True, blank=True)
    time_limit_s = models.PositiveIntegerField(null=True, blank=True)
    idle_limit_s = models.PositiveIntegerField(
        null=True, blank=True, help_text="Running time without a session in use after which it is stopped."
    )
    retries = models.PositiveIntegerField(default=0)
    tags = models.JSONField(default=dict, blank=True)

    links = models.JSONField(default=dict, blank=True, help_text="Pages elsewhere that show it, as it said itself.")

    state = models.CharField(max_length=20, choices=State.choices, default=State.QUEUED)
    held = models.BooleanField(default=False)
    reason = models.CharField(max_length=30, choices=Reason.choices, blank=True)
    message = models.CharField(max_length=500, blank=True)
    reasons = models.JSONField(default=list, blank=True)
    attempt_count = models.PositiveIntegerField(default=0)
    failures = models.PositiveIntegerField(default=0, help_text="Attempts that count against the retries.")
    requeues = models.PositiveIntegerField(default=0, help_text="Exits with code 75: checkpointed, requeue me.")
    losses = models.PositiveIntegerField(default=0, help_text="Attempts lost with their node.")
    hold_next = models.BooleanField(default=False, help_text="Held as soon as it is back in the queue.")
    exit_code = models.IntegerField(null=True, blank=True)
    step = models.PositiveBigIntegerField(default=0)
    step_at = models.DateTimeField(null=True, blank=True)
    ran_s = models.FloatField(default=0, help_text="Running time of its ended attempts.")
    attained_gpu_s = models.FloatField(default=0, help_text="GPU-seconds of its ended attempts.")
    work_lost_gpu_s = models.FloatField(default=0)
    created_at = models.DateTimeField(default=timezone.now)
    queued_at = models.DateTimeField(default=timezone.now, help_text="When it last came into the queue.")
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)
    eligible_at = models.DateTimeField(null=True, blank=True, help_text="Not placed before, after a quick requeue.")
    files_deleted_at = models.DateTimeField(
        null=True, blank=True, help_text="When its logs, working folder and checkpoints were deleted."
    )
    files_bytes = models.PositiveBigIntegerField(
        null=True, blank=True, help_text="What these take on disk; measured once, after the job's end."
    )
    updated_at = models.DateTimeField(auto_now=True)

    objects = JobQuerySet.as_manager()

    class Meta:
        ordering = ("-id",)
        indexes = [
            models.Index(fields=("state", "-id"), name="job_by_state"),
            models.Index(
                fields=("-id",),
                condition=Q(state__in=("queued", "starting", "running", "stopping")),
                name="job_unfinished",
            ),
            models.Index(fields=("team", "-id"), name="job_by_team"),
            models.Index(fields=("owner", "-id"), name="job_by_owner"),
            models.Index(fields=("name",), name="job_by_beginning", opclasses=("varchar_pattern_ops",)),
            models.Index(IdTail("id"), name="job_by_end_of_id"),
            models.Index(fields=("created_at",), name="job_by_creation"),
            models.Index(fields=("updated_at",), name="job_by_change"),
            models.Index(fields=("code",), condition=Q(code__isnull=False), name="job_by_code"),
            models.Index(
                fields=("finished_at",),
                condition=Q(finished_at__isnull=False, files_deleted_at__isnull=True),
                name="job_with_files",
            ),
            models.Index(
                fields=("finished_at",),
                condition=Q(finished_at__isnull=False, files_deleted_at__isnull=False),
                name="job_without_files",
            ),
            models.Index(fields=("array", "state"), condition=Q(array__isnull=False), name="job_of_array_by_state"),
            models.Index(
                fields=("array", "attempt_count"),
                condition=Q(array__isnull=False, attempt_count__gt=1),
                name="job_of_array_restarted",
            ),
            models.Index(fields=("recurring", "-id"), condition=Q(recurring__isnull=False), name="job_of_recurring"),
            models.Index(
                fields=("recurring", "state"),
                condition=Q(recurring__isnull=False, finished_at__isnull=True),
                name="job_of_recurring_unfinished",
            ),
            models.Index(fields=("recipe", "-id"), condition=Q(recipe__isnull=False), name="job_of_recipe"),
            models.Index(fields=("continues",), condition=Q(continues__isnull=False), name="job_by_continued"),
            models.Index(fields=("eligible_at",), condition=Q(eligible_at__isnull=False), name="job_by_pause"),
            models.Index(fields=("begin_time",), condition=Q(begin_time__isnull=False), name="job_by_begin_time"),
            models.Index(
                fields=("id",),
                condition=Q(state="running") & (Q(time_limit_s__isnull=False) | Q(idle_limit_s__isnull=False)),
                name="job_running_limited",
            ),
        ]
        constraints = [
            models.CheckConstraint(condition=Q(gpus_min__gt=0, gpus_max__gte=F("gpus_min")), name="job_gang_in_order"),
            models.CheckConstraint(condition=Q(weight__gt=0), name="job_weight_positive"),
            models.CheckConstraint(condition=~Q(name=""), name="job_has_a_name"),
            models.CheckConstraint(condition=Q(held=False) | Q(state="queued"), name="job_held_only_while_queued"),
            models.CheckConstraint(
                condition=Q(finished_at=None) ^ Q(state__in=("succeeded", "failed", "cancelled", "timed_out")),
                name="job_finished_at_when_final",
            ),
            models.CheckConstraint(
                condition=Q(
                    state__in=(
                        "queued",
                        "starting",
                        "running",
                        "stopping",
                        "succeeded",
                        "failed",
                        "cancelled",
                        "timed_out",
                    )
                ),
                name="job_state_known",
            ),
            models.CheckConstraint(
                condition=Q(array=None, array_index=None) | Q(array__isnull=False, array_index__isnull=False),
                name="job_array_index_in_array",
            ),
            models.UniqueConstraint(fields=("array", "array_index"), name="job_once_per_array_index"),
        ]

    def __str__(self) -> str:
        return self.name if self.array_index is None else f"{self.name}[{self.array_index}]"

    @property
    def is_final(self) -> bool:
        return self.state in Job.FINAL

    @property
    def restarts(self) -> int:
        """Attempts after the first."""
        return max(self.attempt_count - 1, 0)

    @property
    def late_s(self) -> float | None:
        """Seconds from its deadline to its end, negative if it was met; None: it has no deadline, or has not ended."""
        if self.deadline is None or self.finished_at is None:
            return None
        return (self.finished_at - self.deadline).total_seconds()

    @property
    def steps_in_all(self) -> int | None:
        """Declared, else as it reports them, or the other way round where its batch is tuned; None: not known."""
        return steps_in_all(self.total_steps, self.reported_total_steps, tuned=bool(self.batch_size))

    @property
    def work(self) -> TrainingWork:
        """What it has done and what is left, in its own steps and in those in which rates count."""
        return TrainingWork.of(self)

    @property
    def last_step(self) -> int | None:
        """Its own step at which it will be done, with the present batch; None: not known."""
        is_own = not self.batch_size or self.reported_total_steps
        return self.steps_in_all if is_own else self.work.last_own_step

    @property
    def replica(self) -> GpusPerReplica:
        """How many GPUs of each type one replica takes."""
        return GpusPerReplica.of(self.gpus_per_replica)

    @property
    def replicas(self) -> tuple[int, int]:
        """Fewest and most replicas; GPUs, where a replica is one."""
        return self.replica.replicas(self.gpus_min, self.gpus_max)

    @property
    def is_elastic(self) -> bool:
        least, most = self.replicas
        return most > least

    @property
    def requested(self) -> str:
        """Requested GPUs as text: 1 to 4 x A100 or V100; 2 replicas of 2 A100 or 4 V100."""
        least, most = self.replicas
        many = f"{least} to {most}" if most > least else f"{least}"
        if not self.replica.several:
            return f"{many} x {' or '.join(self.gpu_types).upper() or 'any type'}"
        each = " or ".join(f"{self.replica.on(name)} {name.upper()}" for name in self.gpu_types)
        return f"{many} replica{'s' * (most > 1)} of {each or f'{self.replica.any_type} GPUs of any type'}"

    @property
    def requested_in_short(self) -> str:
        """The same for a table: 1-4 x A100/V100; 2 x 2 A100/4 V100."""
        least, most = self.replicas
        many = f"{least}\N{EN DASH}{most}" if most > least else f"{least}"
        if not self.replica.several:
            return f"{many} x {'/'.join(self.gpu_types).upper()}" if self.gpu_types else many
        each = "/".join(f"{self.replica.on(name)} {name.upper()}" for name in self.gpu_types)
        return f"{many} x {each or f'{self.replica.any_type} GPUs'}"

    @property
    def arrived_at(self) -> datetime:
        """When it could first have started: its submission, or its begin time."""
        return arrival_of(self.created_at, self.begin_time)

    @property
    def waits_since(self) -> datetime:
        """Time since which it waits in the queue, not counting the wait for its begin time."""
        return arrival_of(self.queued_at, self.begin_time)

    def waited_s(self, now: datetime) -> float:
        """Seconds from its arrival to the first start."""
        return max(((self.started_at or self.finished_at or now) - self.arrived_at).total_seconds(), 0.0)


class JobDependencyQuerySet(models.QuerySet["JobDependency"]):
    def unmet(self) -> "JobDependencyQuerySet":
        """Dependencies that are not fulfilled yet."""
        ended = Q(on=JobDependency.On.END, parent__state__in=Job.FINAL)
        return self.exclude(Q(parent__state=Job.State.SUCCEEDED) | ended)

    def broken(self) -> "JobDependencyQuerySet":
        """Dependencies that can no longer be fulfilled."""
        return self.filter(
            on=JobDependency.On.SUCCESS, parent__state__in=(Job.State.FAILED, Job.State.CANCELLED, Job.State.TIMED_OUT)
        )


class JobDependency(models.Model):
    """`child` starts only after `parent`. A parent exists before its child, so there are no cycles."""

    class On(models.TextChoices):
        SUCCESS = "success", "succeeds"
        END = "end", "ends in any state"

    child = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="needs")
    parent = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="needed_by")
    on = models.CharField(max_length=10, choices=On.choices, default=On.SUCCESS)

    objects = JobDependencyQuerySet.as_manager()

    class Meta:
        verbose_name_plural = "job dependencies"
        constraints = [
            models.UniqueConstraint(fields=("child", "parent"), name="dependency_once"),
            models.CheckConstraint(condition=~Q(child=F("parent")), name="dependency_not_on_itself"),
        ]

    def __str__(self) -> str:
        return f"{self.child_id} after {self.parent_id} {self.on}"


class JobTag(models.Model):
    """A job's tag as a row, by which lists are filtered; `Job.tags` holds the same as written."""

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="tag_rows")
    name = models.CharField(max_length=100)
    value = models.CharField(max_length=100, blank=True)

    class Meta:
        indexes = [models.Index(fields=("name", "value", "-job"), name="tag_by_value")]
        constraints = [models.UniqueConstraint(fields=("job", "name"), name="tag_once_per_job")]

    def __str__(self) -> str:
        return f"{self.name}={self.value}"

    @classmethod
    def rows_of(cls, job_id: UUID, tags: Mapping[str, str]) -> "list[JobTag]":
        """Rows for `Job.tags`."""
        return [cls(job_id=job_id, name=name, value=value) for name, value in tags.items()]
