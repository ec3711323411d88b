"""Serializers of jobs, attempts and events for REST."""

from functools import cache
from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from jobs_app.measurement.energy import ENERGY_SOURCES, energy_of_ended
from jobs_app.models import Attempt, Job, JobEvent, Reason
from jobs_app.submission.conversion import spec_of
from jobs_app.submission.spec import JobSpec
from web.rest.etags import etag_of


class AttemptAnswer(serializers.ModelSerializer[Attempt]):
    gpu_type = serializers.CharField(source="gpu_type.name")
    outcome = serializers.ChoiceField(
        Attempt.Outcome.choices, allow_blank=True, help_text="Empty until the attempt has ended."
    )
    stop_reason = serializers.ChoiceField(
        Attempt.StopReason.choices, allow_blank=True, help_text="Empty unless the attempt was told to stop."
    )
    rate = serializers.FloatField(
        source="told_rate",
        allow_null=True,
        help_text="Steps/s (of the initial batch) that the round counted on, with two digits if they were estimated or "
        "completed; null: assumed, as no rate of the workload was known.",
    )
    rate_source = serializers.ChoiceField(
        Attempt.RateSource.choices,
        allow_blank=True,
        help_text="Where `rate` comes from; empty: it was placed before this was recorded.",
    )
    measured_rate = serializers.FloatField(read_only=True, allow_null=True)
    cpu_memory = serializers.ChoiceField(
        Attempt.CpuMemory.choices,
        allow_blank=True,
        help_text="How CPUs and memory per GPU were chosen; empty, with 0 for both: as the job asked.",
    )
    devices = serializers.DictField(
        child=serializers.CharField(), help_text="Node to physical GPUs, where the site chose them: 0-1,3."
    )

    class Meta:
        model = Attempt
        fields = (
            "id",
            "number",
            "state",
            "outcome",
            "exit_code",
            "message",
            "gpu_type",
            "gpu_count",
            "nodes",
            "engine",
            "devices",
            "site_job",
            "round_number",
            "rate",
            "rate_source",
            "measured_rate",
            "measures",
            "batch_size",
            "cpus_per_gpu",
            "memory_per_gpu_mib",
            "peak_memory_mib",
            "cpu_memory",
            "claimed_at",
            "launched_at",
            "started_at",
            "code_s",
            "setup_s",
            "restore_s",
            "restored_at",
            "first_step_at",
            "step_at",
            "stopping_at",
            "ended_at",
            "stop_reason",
            "stop_note",
            "first_step",
            "step",
            "loss",
            "invalid_lines",
            "checkpoint_s",
            "checkpoint_at",
            "work_lost_gpu_s",
        )
        read_only_fields = fields


class ReasonAnswer(serializers.Serializer[Any]):
    code = serializers.CharField()
    detail = serializers.CharField()
    numbers = serializers.DictField()
    figures = serializers.CharField(required=False, help_text="The optimiser's figures behind it, in words.")


class RanOnAnswer(serializers.Serializer[Any]):
    """GPUs of the latest attempt of a job that has ended."""

    gpu_type = serializers.CharField()
    gpu_count = serializers.IntegerField()
    nodes = serializers.ListField(child=serializers.CharField())


class ProgressAnswer(serializers.Serializer[Any]):
    step = serializers.IntegerField()
    total_steps = serializers.IntegerField(allow_null=True)
    rate = serializers.FloatField(allow_null=True, help_text="Steps/s of the running attempt.")
    at = serializers.DateTimeField(allow_null=True)


class JobAnswer(serializers.ModelSerializer[Job]):
    """A job with its spec, and the GPUs of its live attempt."""

    team = serializers.CharField(source="team.name")
    owner = serializers.CharField(source="owner.username")
    array = serializers.UUIDField(source="array_id", allow_null=True, read_only=True)
    recurring = serializers.IntegerField(
        source="recurring_id",
        allow_null=True,
        read_only=True,
        help_text="Id of the recurring job of which it is a run.",
    )
    recipe = serializers.IntegerField(
        source="recipe_id",
        allow_null=True,
        read_only=True,
        help_text="Id of the recipe by which it was submitted.",
    )
    reason = serializers.ChoiceField(
        Reason.choices, allow_blank=True, help_text="Why the job waits or has ended; empty while it runs."
    )
    reasons = ReasonAnswer(many=True)
    gpu_type = serializers.SerializerMethodField()
    gpu_count = serializers.SerializerMethodField()
    nodes = serializers.SerializerMethodField()
    ran_on = serializers.SerializerMethodField()
    progress = serializers.SerializerMethodField()
    work_lost_gpu_seconds = serializers.FloatField(source="work_lost_gpu_s")
    links = serializers.DictField(
        child=serializers.CharField(),
        read_only=True,
        help_text="Name → page elsewhere that shows it, as it said itself.",
    )
    spec = serializers.SerializerMethodField()

    class Meta:
        model = Job
        fields: tuple[str, ...] = (
            "id",
            "name",
            "team",
            "owner",
            "state",
            "reason",
            "message",
            "reasons",
            "held",
            "array",
            "array_index",
            "recurring",
            "recipe",
            "recipe_version",
            "continues",
            "continues_from",
            "continues_step",
            "spec",
            "workload",
            "weight",
            "gpu_type",
            "gpu_count",
            "nodes",
            "ran_on",
            "progress",
            "exit_code",
            "work_lost_gpu_seconds",
            "links",
            "created_at",
            "started_at",
            "finished_at",
            "files_deleted_at",
            "updated_at",
        )
        read_only_fields: tuple[str, ...] = fields

    def get_gpu_type(self, job: Job) -> str | None:
        attempt = self._live(job)
        return attempt.gpu_type.name if attempt else None

    def get_gpu_count(self, job: Job) -> int:
        attempt = self._live(job)
        return attempt.gpu_count if attempt else 0

    def get_nodes(self, job: Job) -> list[str]:
        attempt = self._live(job)
        return list(attempt.nodes) if attempt else []

    @extend_schema_field(RanOnAnswer(allow_null=True, help_text="Null: it has not ended, or has never started."))
    def get_ran_on(self, job: Job) -> dict[str, Any] | None:
        latest = max(job.attempts.all(), key=lambda attempt: attempt.number, default=None) if job.is_final else None
        if latest is None:
            return None
        return {"gpu_type": latest.gpu_type.name, "gpu_count": latest.gpu_count, "nodes": list(latest.nodes)}

    @extend_schema_field(ProgressAnswer)
    def get_progress(self, job: Job) -> dict[str, Any]:
        attempt = self._live(job)
        rate = attempt.measured_rate if attempt else None
        return {"step": job.step, "total_steps": job.last_step, "rate": rate, "at": job.step_at}

    @extend_schema_field(JobSpec)
    def get_spec(self, job: Job) -> dict[str, Any]:
        return spec_of(job)

    def _live(self, job: Job) -> Attempt | None:
        return next((attempt for attempt in job.attempts.all() if attempt.state != Attempt.State.ENDED), None)


class EnergyOfJob(serializers.Serializer[Any]):
    """Energy of the GPUs of its attempts that have ended; null for a job that was archived before it was recorded."""

    wh = serializers.FloatField(allow_null=True, help_text="Null: not known.")
    source = serializers.ChoiceField(
        ENERGY_SOURCES,  # type: ignore[assignment]  # a field's own
        help_text="As read of the GPUs, or by the power of their type.",
    )


class JobInFull(JobAnswer):
    """One job, with all its attempts."""

    attempts = AttemptAnswer(many=True, read_only=True)
    energy = serializers.SerializerMethodField()
    archived = serializers.SerializerMethodField(
        help_text="Whether it is in the archive, as it was when it left the lists; it cannot be changed."
    )
    etag = serializers.SerializerMethodField(help_text="Entity tag of this state; send it as `If-Match` with a change.")

    class Meta(JobAnswer.Meta):
        fields = (*JobAnswer.Meta.fields, "attempts", "energy", "archived", "etag")
        read_only_fields = fields

    @extend_schema_field(EnergyOfJob(allow_null=True))
    def get_energy(self, job: Job) -> dict[str, Any]:
        """Without the running attempt: its energy grows, and the entity tag would change with each reading."""
        ended = energy_of_ended(job.attempts.all())
        return {"wh": ended.watt_hours, "source": ended.source.value}

    def get_archived(self, job: Job) -> bool:
        return False  # `jobs_app.job_archive` shows those of the archive

    def get_etag(self, job: Job) -> str:
        return ""  # computed from the whole representation, in `to_representation`

    def to_representation(self, instance: Job) -> dict[str, Any]:
        whole: dict[str, Any] = super().to_representation(instance)
        return whole | {"etag": etag_of(whole)}


def in_full(job: Job) -> dict[str, Any]:
    """Representation of one job, without a request."""
    return _in_full().to_representation(job)


@cache
def _in_full() -> JobInFull:
    """One instance for all jobs: it keeps no state, and its fields are copied only once."""
    return JobInFull()


class EventAnswer(serializers.ModelSerializer[JobEvent]):
    actor = serializers.CharField(source="actor.username", default=None, read_only=True, allow_null=True)

    class Meta:
        model = JobEvent
        fields = ("id", "at", "kind", "attempt", "message", "actor")
        read_only_fields = fields


class JobBatch(serializers.Serializer[Any]):
    """Describes the body in the schema; `jobs_app.submission.batch` parses it."""

    jobs = JobSpec(many=True)


class BatchAnswer(serializers.Serializer[Any]):
    count = serializers.IntegerField()
    ids = serializers.ListField(child=serializers.UUIDField(), help_text="In the order of the jobs.")
