"""The job's spec: one schema for the form, YAML, REST and Python, in both directions.

`parse_spec` turns what a person wrote into the columns of `Job`; `spec_of` turns a job back into what to write.
"""

import re
from collections.abc import Mapping
from datetime import UTC
from functools import cache
from typing import Any

import yaml
from rest_framework import serializers

from jobs_app.errors import InvalidSpec, faults_of
from jobs_app.fields import (
    LARGEST_BATCH,
    Command,
    Gpus,
    JobWeight,
    Number,
    PlainText,
    Rates,
    Strict,
    Tags,
    TimeToCome,
    is_text,
)
from jobs_app.models import Job, JobDependency
from jobs_app.models.job import LARGEST_ARRAY
from jobs_app.quantities import Memory, Seconds
from motley_client.plain_yaml import UnreadableYaml, read_yaml

LARGEST_YAML_BYTES = 256 * 1024
LARGEST_COMMAND_BYTES = 64 * 1024
LONGEST_GRACE_S = 3600
MOST_RETRIES = 1000

REQUIRED = {"name", "command", "gpus"}
EMPTY: tuple[Any, ...] = (None, "", [], {})
DEFAULTS: dict[str, Any] = {
    "gpu_memory": 0,
    "cpus_per_gpu": 0,
    "memory_per_gpu": 0,
    "checkpoint": {"grace_seconds": 60, "restore_seconds": 30},
    "preemptible": True,
    "uneven_gang": False,
    "weight": 1.0,
    "retries": 0,
}


class Checkpoint(Strict):
    grace_seconds = serializers.IntegerField(source="grace_s", min_value=1, max_value=LONGEST_GRACE_S, default=60)
    restore_seconds = Number(source="restore_s", min_value=0, max_value=86_400, default=30)


class Samples(serializers.IntegerField):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(min_value=1, max_value=LARGEST_BATCH, **kwargs)


class BatchSize(Strict):
    """Samples of a step of the whole job, tuned between the initial and the largest; and of one GPU at once."""

    initial = Samples(help_text="What the learning rate is made for; rates are in steps of so many samples.")
    max = Samples(help_text="The largest with which the training still comes to the same end.")
    max_per_gpu = Samples(help_text="What fits on one GPU at once; more is done in several parts.")
    min_per_gpu = Samples(default=1, help_text="What one GPU should have at the least.")

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if attrs["initial"] > attrs["max"]:
            raise serializers.ValidationError({"max": ["The batch grows from the initial one: write as much or more."]})
        # What does not fit at once is done in equal parts, each of more than half of what fits.
        if attrs["min_per_gpu"] > max(attrs["max_per_gpu"] // 2, 1):
            text = f"Write at most half of max_per_gpu, {attrs['max_per_gpu'] // 2}: shares too large are halved."
            raise serializers.ValidationError({"min_per_gpu": [text]})
        return attrs


class After(Strict):
    job = serializers.UUIDField()
    on = serializers.ChoiceField(
        JobDependency.On.choices,
        default=JobDependency.On.SUCCESS,
        error_messages={"invalid_choice": f"Write one of {', '.join(JobDependency.On.values)}."},
    )


class Array(Strict):
    start = serializers.IntegerField(min_value=0, max_value=2**31 - 1, default=0)
    end = serializers.IntegerField(min_value=0, max_value=2**31 - 1)
    at_a_time = serializers.IntegerField(
        min_value=1, max_value=2**31 - 1, required=False, allow_null=True, default=None
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if not attrs["start"] <= attrs["end"] < attrs["start"] + LARGEST_ARRAY:
            raise serializers.ValidationError(f"The end comes after the start, with at most {LARGEST_ARRAY:,} members.")
        return attrs


class JobSpec(Strict):
    """A job as people write it."""

    name = PlainText(max_length=100)
    team = serializers.CharField(required=False, source="team_name", max_length=60)
    command = Command()
    workdir = PlainText(required=False, allow_blank=True, max_length=500)
    env = serializers.DictField(child=serializers.CharField(allow_blank=True, trim_whitespace=False), required=False)
    gpus = Gpus(source="*")
    gpu_types = serializers.ListField(child=serializers.CharField(max_length=40), required=False, max_length=100)
    gpu_memory = Memory(source="gpu_memory_mib", required=False)
    cpus_per_gpu = serializers.IntegerField(min_value=0, max_value=100_000, required=False)
    memory_per_gpu = Memory(source="memory_per_gpu_mib", required=False)
    workload = PlainText(required=False, max_length=200)
    rates = Rates(required=False)
    batch_size = BatchSize(required=False)
    total_steps = serializers.IntegerField(min_value=1, max_value=2**62, required=False, allow_null=True)
    checkpoint = Checkpoint(required=False, source="*")
    preemptible = serializers.BooleanField(required=False)
    uneven_gang = serializers.BooleanField(required=False)
    weight = JobWeight(required=False)
    deadline = TimeToCome(required=False, allow_null=True)
    time_limit = Seconds(source="time_limit_s", required=False, allow_null=True)
    retries = serializers.IntegerField(min_value=0, max_value=MOST_RETRIES, required=False)
    after = serializers.ListField(child=After(), required=False, max_length=1000)
    array = Array(required=False, allow_null=True)
    tags = Tags(required=False)

    def validate_workdir(self, path: str) -> str:
        if path and not (path.startswith("/") and ".." not in path.split("/")):
            raise serializers.ValidationError("Write an absolute path without '..'; leave it out for a fresh folder.")
        return path

    def validate_env(self, env: dict[str, str]) -> dict[str, str]:
        if faults := {name: [fault] for name, value in env.items() if (fault := _env_fault(name, value))}:
            raise serializers.ValidationError(faults)
        return env

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        env = "".join(name + value for name, value in attrs.get("env", {}).items())
        size = len(str(attrs["command"]).encode()) + len(env.encode())
        if size > LARGEST_COMMAND_BYTES:
            raise serializers.ValidationError({"env": ["Command and environment are more than 64 KiB together."]})
        if fault := _batch_fault(attrs):
            raise serializers.ValidationError({"batch_size": {"max": [fault]}})
        if "rates" in attrs:
            least = str(attrs["gpus_min"])
            attrs["rates"] = {k: {gpus or least: v for gpus, v in by.items()} for k, by in attrs["rates"].items()}
        return attrs


def _batch_fault(attrs: dict[str, Any]) -> str | None:
    batch, gpus = attrs.get("batch_size"), attrs["gpus_min"]
    if not batch or gpus * batch["min_per_gpu"] <= batch["max"]:
        return None
    least = gpus * batch["min_per_gpu"]
    return f"{gpus} GPUs with {batch['min_per_gpu']} samples each have {least}: write that or more, or fewer GPUs."


def _env_fault(name: str, value: str) -> str | None:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) or not is_text(value):
        return "Name variables by letters, digits and '_'; no NUL bytes."
    return "Names that begin with MOTLEY_ are set by Motley." if name.startswith("MOTLEY_") else None


class JobChange(Strict):
    """What may be changed of a job that was submitted; the rest says what work it is."""

    name = PlainText(max_length=100, required=False)
    weight = JobWeight(required=False)
    tags = Tags(required=False)
    time_limit = Seconds(source="time_limit_s", required=False, allow_null=True)
    deadline = TimeToCome(required=False, allow_null=True)
    retries = serializers.IntegerField(min_value=0, max_value=MOST_RETRIES, required=False)

    def _no_such(self, name: str) -> serializers.ErrorDetail:
        if name not in JobSpec().fields:
            return super()._no_such(name)
        text = f"A submitted job keeps its {name}: clone it with another. Changed may be {', '.join(self.fields)}."
        return serializers.ErrorDetail(text, "immutable")


class SpecReader:
    """Reads many specs, where `JobSpec(data=...)` would copy its fields for each.

    A value that comes again is not looked at again. Only what every field takes is read here; as soon as one does not,
    `JobSpec` says what is wrong, so that there is one set of rules and one of faults.
    """

    def __init__(self) -> None:
        self._spec = _bound_spec()
        self._known: dict[tuple[str, type, str], dict[str, Any] | None] = {}

    def read(self, data: Any) -> dict[str, Any]:
        """The columns of `Job` for what was written, or `InvalidSpec` with every fault."""
        columns = self._columns(data) if type(data) is dict else None
        return _parsed(JobSpec(data=data)) if columns is None else columns

    def _columns(self, data: dict[Any, Any]) -> dict[str, Any] | None:
        if not data.keys() >= REQUIRED:
            return None
        columns: dict[str, Any] = {}
        for name, value in data.items():
            part = self._part(name, value)
            if part is None:
                return None
            columns |= part
        try:
            return self._spec.validate(columns)
        except serializers.ValidationError:
            return None

    def _part(self, name: Any, value: Any) -> dict[str, Any] | None:
        try:
            key = (name, type(value), value if type(value) is str else repr(value))
        except (ValueError, RecursionError):  # a number of 5,000 digits, 5,000 brackets
            return None
        if key not in self._known:
            self._known[key] = self._look_at(name, value)
        return self._known[key]

    def _look_at(self, name: Any, value: Any) -> dict[str, Any] | None:
        """What the field makes of it; None if the field, or that there is none, has to be spoken of."""
        field, check = self._spec.fields.get(name), getattr(self._spec, f"validate_{name}", None)
        if field is None:
            return None
        try:
            read = field.run_validation(value)
            read = check(read) if check else read
        except (serializers.ValidationError, serializers.SkipField):
            return None
        return read if field.source == "*" else {str(field.source): read}


@cache
def _bound_spec() -> JobSpec:
    """Its fields keep nothing of what they read: all threads may use them at once."""
    return JobSpec()


def parse_spec(data: Any) -> dict[str, Any]:
    """The columns of `Job` for what was written, or `InvalidSpec` with every fault."""
    return SpecReader().read(data)


def parse_change(data: Any) -> dict[str, Any]:
    """The columns of `Job` to change, or `InvalidSpec` with every fault."""
    return _parsed(JobChange(data=data))


def _parsed(serializer: serializers.Serializer[Any]) -> dict[str, Any]:
    if not serializer.is_valid():
        raise InvalidSpec(faults_of(serializer.errors))
    return dict(serializer.validated_data)


def spec_of(job: Job) -> dict[str, Any]:
    """What to write to get such a job again; what is at its default is left out."""
    written = {
        "name": job.name,
        "team": job.team.name,
        "command": job.command,
        "workdir": job.workdir,
        "env": job.env,
        "gpus": {"min": job.gpus_min, "max": job.gpus_max} if job.is_elastic else job.gpus_min,
        "gpu_types": job.gpu_types,
        "gpu_memory": job.gpu_memory_mib and Memory().to_representation(job.gpu_memory_mib),
        "cpus_per_gpu": job.cpus_per_gpu,
        "memory_per_gpu": job.memory_per_gpu_mib and Memory().to_representation(job.memory_per_gpu_mib),
        "workload": job.workload,
        "rates": {kind: {int(gpus): rate for gpus, rate in by.items()} for kind, by in job.rates.items()},
        "batch_size": job.batch_size,
        "total_steps": job.total_steps,
        "checkpoint": {"grace_seconds": job.grace_s, "restore_seconds": float(job.restore_s)},
        "preemptible": job.preemptible,
        "uneven_gang": job.uneven_gang,
        "weight": job.weight,
        "deadline": job.deadline and job.deadline.astimezone(UTC).isoformat().replace("+00:00", "Z"),
        "time_limit": job.time_limit_s and Seconds().to_representation(job.time_limit_s),
        "retries": job.retries,
        "after": [{"job": str(need.parent_id), "on": need.on} for need in job.needs.all()],
        "tags": job.tags,
    }
    return {name: value for name, value in written.items() if value != DEFAULTS.get(name) and value not in EMPTY}


def parse_yaml(text: str) -> Any:
    """What a YAML text says, or `InvalidSpec` with the line."""
    if len(text.encode(errors="replace")) > LARGEST_YAML_BYTES:
        raise InvalidSpec.at("", "too_large", "The YAML is larger than 256 KiB.")
    try:
        documents = read_yaml(text)
    except UnreadableYaml as error:
        raise InvalidSpec.at("", "not_yaml", f"This is not YAML: {error}") from error
    if len(documents) > 1:
        raise InvalidSpec.at("", "several", "This is more than one document: write one job, without '---'.")
    return documents[0] if documents else None


def write_yaml(spec: Mapping[str, Any]) -> str:
    return yaml.safe_dump(dict(spec), sort_keys=False, allow_unicode=True, width=120)
