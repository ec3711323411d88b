"""Schema of a job's spec, the same for the form, YAML, REST and Python."""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Any

from rest_framework import serializers

from cluster_app.replica_size import GpusPerReplica
from cluster_app.storage import Volunteers
from jobs_app.models import JobDependency
from jobs_app.models.code_archive import DIGEST
from jobs_app.submission.arrays import ArrayIndices
from jobs_app.submission.fields import (
    LARGEST_BATCH,
    LARGEST_RATE,
    LEAST_RATE,
    MOST_GPUS,
    Command,
    CpuCurve,
    FutureTime,
    Gpus,
    GpuTypes,
    JobWeight,
    Mounts,
    Number,
    PlainText,
    Rates,
    Replicas,
    ReplicaSize,
    SecretNames,
    ShellText,
    Tags,
    is_text,
    reserved_fault,
)
from jobs_app.submission.images import Image
from jobs_app.submission.units import Memory, Seconds
from web.rest.bodies import DictOf, ListOf, Strict, with_note
from web.rest.choices import Choice
from web.rest.errors import MOST_FAULTS

LARGEST_COMMAND_BYTES = 64 * 1024
LONGEST_GRACE_S = 3600
MOST_RETRIES = 1000


class Checkpoint(Strict):
    grace_seconds = serializers.IntegerField(source="grace_s", min_value=1, max_value=LONGEST_GRACE_S, default=60)
    restore_seconds = Number(source="restore_s", min_value=0, max_value=86_400, default=30)


class Samples(serializers.IntegerField):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(min_value=1, max_value=LARGEST_BATCH, **kwargs)


class BatchSize(Strict):
    """Batch size in samples: limits between which it is tuned, for the whole job and per GPU, or replica of several."""

    initial = Samples(help_text="Batch size for which the learning rate was chosen; `rates` are in steps of this size.")
    max = Samples(help_text="Largest batch size with which the training still converges to the same result.")
    max_per_gpu = Samples(
        help_text="Samples that fit on one GPU at once; a larger share is split (gradient accumulation)."
    )
    min_per_gpu = Samples(default=1, help_text="Smallest number of samples per GPU.")

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if attrs["initial"] > attrs["max"]:
            raise serializers.ValidationError({"max": ["Must not be less than `initial`."]})
        # A share that does not fit on a GPU is split into equal parts, each of more than half of what fits.
        if attrs["min_per_gpu"] > max(attrs["max_per_gpu"] // 2, 1):
            text = (
                f"Must be at most half of max_per_gpu, {attrs['max_per_gpu'] // 2}: a share that does not fit is split."
            )
            raise serializers.ValidationError({"min_per_gpu": [text]})
        return attrs


OF_DATA = ("dataset", "bytes_per_sample", "samples_per_second")


class Sensitivity(Strict):
    """What CPUs and memory do for the job's throughput: a curve, and the data that memory may keep."""

    cpu_curve = CpuCurve(help_text="Throughput by CPUs per GPU with all data in memory, in any unit.")
    dataset = Memory(source="dataset_mib", required=False, help_text="Size of the data that every epoch reads.")
    bytes_per_sample = serializers.IntegerField(
        min_value=1, max_value=2**40, required=False, help_text="Bytes that are read from storage for one sample."
    )
    samples_per_second = Number(
        min_value=LEAST_RATE,
        max_value=LARGEST_RATE,
        required=False,
        help_text="Samples that one GPU takes when it never waits for data.",
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        missing = [name for name in OF_DATA if self.fields[name].source not in attrs]
        if 0 < len(missing) < len(OF_DATA):
            text = f"The gain from memory needs all three of {', '.join(OF_DATA)}"
            text = f"{text}: add the missing ones, or leave all three out."
            raise serializers.ValidationError({name: [text] for name in missing})
        return attrs


class After(Strict):
    job = serializers.UUIDField()
    on = Choice(
        JobDependency.On.choices,
        default=JobDependency.On.SUCCESS,
    )


class JobSpec(Strict):
    """Schema of a job's spec."""

    name = PlainText(max_length=100)
    team = serializers.CharField(required=False, source="team_name", max_length=60)
    command = Command()
    workdir = PlainText(required=False, allow_blank=True, max_length=500)
    code = serializers.RegexField(
        rf"\A{DIGEST}\Z",
        source="code_digest",
        required=False,
        error_messages={"invalid": "Write the digest of an uploaded archive: 64 hexadecimal digits."},
        help_text="Digest of an archive of the team that is unpacked into the job's own working folder.",
    )
    image = Image()
    volunteers = Choice(
        Volunteers.choices,
        required=False,
        help_text="On which machines that joined it may run: at most those that its team allows, the default.",
    )
    setup = ShellText(
        required=False,
        help_text="Makes the job's environment in $MOTLEY_ENV_DIR, once per GPU type and list of packages.",
    )
    env = DictOf(child=serializers.CharField(allow_blank=True, trim_whitespace=False), required=False)
    secrets = SecretNames(required=False)
    mounts = Mounts(required=False)
    gpus = Gpus(source="*", required=False, help_text="Required, unless `replicas` is given.")
    replicas = Replicas(source="*", required=False)
    gpus_per_replica = ReplicaSize(required=False)
    gpu_types = GpuTypes(required=False)
    gpu_memory = Memory(source="gpu_memory_mib", required=False)
    cpus_per_gpu = serializers.IntegerField(min_value=0, max_value=100_000, required=False)
    memory_per_gpu = Memory(source="memory_per_gpu_mib", required=False)
    sensitivity = Sensitivity(required=False)
    workload = PlainText(required=False, max_length=200)
    rates = Rates(required=False)
    batch_size = BatchSize(required=False)
    total_steps = serializers.IntegerField(min_value=1, max_value=2**62, required=False, allow_null=True)
    checkpoint = Checkpoint(required=False, source="*")
    preemptible = serializers.BooleanField(required=False)
    uneven_gang = serializers.BooleanField(required=False)
    slurm_variables = serializers.BooleanField(
        required=False,
        help_text="Sets SLURM_JOB_ID, SLURM_ARRAY_TASK_ID and others for the job, as for that of a batch script.",
    )
    weight = JobWeight(required=False)
    begin_time = FutureTime(required=False, allow_null=True, help_text="The job waits until then.")
    deadline = FutureTime(required=False, allow_null=True)
    time_limit = Seconds(source="time_limit_s", required=False, allow_null=True)
    idle_limit = Seconds(
        source="idle_limit_s",
        required=False,
        allow_null=True,
        help_text="Stops a running job after this time without input or output of a session: for notebooks.",
    )
    retries = serializers.IntegerField(min_value=0, max_value=MOST_RETRIES, required=False)
    after = ListOf(child=After(), required=False, max_length=1000)
    array = ArrayIndices(required=False, allow_null=True)
    tags = Tags(required=False)

    def to_internal_value(self, data: Any) -> dict[str, Any]:
        faults = _size_faults(data) if isinstance(data, Mapping) else {}
        try:
            columns = super().to_internal_value(data)
        except serializers.ValidationError as error:
            raise serializers.ValidationError(faults | error.detail) from None  # type: ignore[operator]  # a serializer's is a map
        if faults:
            raise serializers.ValidationError(faults)
        return columns

    def _unknown(self, names: Sequence[str]) -> dict[str, Any]:
        """Names that begin with `x-` hold YAML anchors for other fields to refer to."""
        return super()._unknown([name for name in names if not name.startswith("x-")])

    def validate_workdir(self, path: str) -> str:
        if path and not (path.startswith("/") and ".." not in path.split("/")):
            raise serializers.ValidationError(
                "Write an absolute path without '..', or leave it out to get a new folder."
            )
        return path

    def validate_env(self, env: dict[str, str]) -> dict[str, str]:
        faults = ((name, [fault]) for name, value in env.items() if (fault := _env_fault(name, value)))
        if first := dict(islice(faults, MOST_FAULTS)):
            raise serializers.ValidationError(with_note(first, is_cut=next(faults, None) is not None))
        return env

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        attrs = _in_gpus(attrs) if "gpus_per_replica" in attrs else attrs
        env = "".join(name + value for name, value in attrs.get("env", {}).items())
        size = len(str(attrs["command"]).encode()) + len(attrs.get("setup", "").encode()) + len(env.encode())
        if size > LARGEST_COMMAND_BYTES:
            raise serializers.ValidationError(
                {"env": ["The command, the setup and the environment together are larger than 64 KiB."]}
            )
        if attrs.get("code_digest") and attrs.get("workdir"):
            text = "Code is unpacked into a folder of the job's own: leave workdir out, or code."
            raise serializers.ValidationError({"workdir": [text]})
        if attrs.get("image") and ":" in attrs.get("workdir", ""):
            text = "A job with an image needs a working folder whose path has no colon."
            raise serializers.ValidationError({"workdir": [text]})
        if fault := _sensitivity_fault(attrs):
            raise serializers.ValidationError({"sensitivity": [fault]})
        if fault := _batch_fault(attrs):
            raise serializers.ValidationError({"batch_size": {"max": [fault]}})
        if fault := order_fault(attrs.get("begin_time"), attrs.get("deadline")):
            raise serializers.ValidationError({"deadline": [fault]})
        if "rates" in attrs:
            replica, replicas = _replicas(attrs)
            attrs["rates"] = {
                kind: {gpus or str(replicas * replica.on(kind)): rate for gpus, rate in by.items()}
                for kind, by in attrs["rates"].items()
            }
        return attrs


def order_fault(begin: datetime | None, deadline: datetime | None) -> str:
    """Fault of a deadline that comes before the job may begin."""
    if begin is None or deadline is None or deadline > begin:
        return ""
    return f"The job begins at {begin.astimezone(UTC):%F %H:%M} UTC at the earliest: give a deadline after that."


def _size_faults(data: Mapping[Any, Any]) -> dict[str, Any]:
    """Faults of the fields that say how large the job is: GPUs, or replicas and the GPUs of each."""
    replicas, size = "replicas" in data, "gpus_per_replica" in data
    if "gpus" in data:
        text = "Write either gpus, or replicas and gpus_per_replica: each replica takes as many GPUs."
        return {"gpus": [text]} if replicas or size else {}
    if not replicas and not size:
        text = "Say how many GPUs the job needs: 2, or {min: 1, max: 8} for an elastic one; `--gpus` of motley submit."
        return {"gpus": [serializers.ErrorDetail(text, "required")]}
    if not size:
        text = "Say how many GPUs one replica takes: 4, or {a100: 2, v100: 4}; or write gpus in place of replicas."
        return {"gpus_per_replica": [serializers.ErrorDetail(text, "required")]}
    text = "Say how many replicas the job has: 2, or {min: 1, max: 4} for an elastic one."
    return {} if replicas else {"replicas": [serializers.ErrorDetail(text, "required")]}


def _in_gpus(attrs: dict[str, Any]) -> dict[str, Any]:
    """The columns with GPUs in place of replicas; a size for each GPU type allows these types only."""
    attrs, size = dict(attrs), attrs["gpus_per_replica"]
    if isinstance(size, Mapping):
        types = attrs.get("gpu_types") or list(size)
        if unsaid := [name for name in types if name not in size]:
            text = f"gpus_per_replica does not say how many {', '.join(unsaid)} a replica takes: add it there, or leave"
            raise serializers.ValidationError({"gpu_types": [f"{text} it out here."]})
        attrs |= {"gpu_types": types, "gpus_per_replica": {name: size[name] for name in types}}
    replica = GpusPerReplica.of(attrs["gpus_per_replica"])
    gpus_min, gpus_max = replica.gpus(attrs.pop("replicas_min"), attrs.pop("replicas_max"))
    if gpus_max > MOST_GPUS:
        text = f"These are {gpus_max:,} GPUs, and a job may have at most {MOST_GPUS:,}: write fewer replicas."
        raise serializers.ValidationError({"replicas": [text]})
    return attrs | {"gpus_min": gpus_min, "gpus_max": gpus_max}


def _replicas(attrs: dict[str, Any]) -> tuple[GpusPerReplica, int]:
    """The size of a replica, and the fewest replicas."""
    replica = GpusPerReplica.of(attrs.get("gpus_per_replica", {}))
    return replica, replica.replicas(attrs["gpus_min"], attrs["gpus_max"])[0]


def _batch_fault(attrs: dict[str, Any]) -> str | None:
    batch, (replica, replicas) = attrs.get("batch_size"), _replicas(attrs)
    if not batch or replicas * batch["min_per_gpu"] <= batch["max"]:
        return None
    noun, least = "replicas" if replica.several else "GPUs", replicas * batch["min_per_gpu"]
    return f"{replicas} {noun} with {batch['min_per_gpu']} samples each need at least {least}; or request fewer {noun}."


def _sensitivity_fault(attrs: dict[str, Any]) -> str | None:
    """Fault of a sensitivity by which nothing could be chosen, because the job fixes its CPUs and its memory."""
    sensitivity = attrs.get("sensitivity")
    if not sensitivity or not attrs.get("cpus_per_gpu"):
        return None
    if "dataset_mib" in sensitivity and not attrs.get("memory_per_gpu_mib"):
        return None
    return "The number of CPUs is fixed by cpus_per_gpu: leave that out, so that it can be chosen, or this."


def _env_fault(name: str, value: str) -> str | None:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) or not is_text(value):
        return "Names consist of letters, digits and '_', and do not begin with a digit; values have no NUL bytes."
    return reserved_fault(name)


class JobChange(Strict):
    """Fields that can be changed after submission."""

    name = PlainText(max_length=100, required=False)
    weight = JobWeight(required=False)
    tags = Tags(required=False)
    time_limit = Seconds(source="time_limit_s", required=False, allow_null=True)
    idle_limit = Seconds(
        source="idle_limit_s",
        required=False,
        allow_null=True,
        help_text="Stops a running job after this time without input or output of a session: for notebooks.",
    )
    begin_time = FutureTime(
        required=False, allow_null=True, help_text="The job waits until then; only of a job that waits in the queue."
    )
    deadline = FutureTime(required=False, allow_null=True)
    retries = serializers.IntegerField(min_value=0, max_value=MOST_RETRIES, required=False)
    command = Command(required=False)
    setup = ShellText(required=False)
    env = DictOf(child=serializers.CharField(allow_blank=True, trim_whitespace=False), required=False)
    gpus = Gpus(source="*", required=False)
    gpu_types = GpuTypes(required=False)
    gpu_memory = Memory(source="gpu_memory_mib", required=False)
    cpus_per_gpu = serializers.IntegerField(min_value=0, max_value=100_000, required=False)
    memory_per_gpu = Memory(source="memory_per_gpu_mib", required=False)
    total_steps = serializers.IntegerField(min_value=1, max_value=2**62, required=False, allow_null=True)

    OF_QUEUED = (
        *("command", "setup", "env", "gpus", "gpu_types", "gpu_memory"),
        *("cpus_per_gpu", "memory_per_gpu", "total_steps"),
    )
    """What the owner may change while the job waits in the queue; `read_change` validates it as a submission."""

    def _unknown(self, names: Sequence[str]) -> dict[str, Any]:
        of_a_job = JobSpec().fields
        fixed = [name for name in names if name in of_a_job]
        faults = super()._unknown([name for name in names if name not in of_a_job])
        return faults | {name: [self._unchangeable(name)] for name in fixed}

    def _unchangeable(self, name: str) -> serializers.ErrorDetail:
        text = f"{name} cannot be changed after submission: clone the job. These can: {', '.join(self.fields)}."
        return serializers.ErrorDetail(text, "immutable")
