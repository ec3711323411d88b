"""Conversion between specs, YAML and columns of `Job`.

`parse_spec` validates a spec and returns columns of `Job`; `spec_of` returns the spec of a job.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Any

import yaml
from rest_framework import serializers

from jobs_app.errors import InvalidSpec
from jobs_app.models import Job
from jobs_app.submission.spec import JobChange, JobSpec
from jobs_app.submission.units import Memory, Seconds
from jobs_app.submission.volunteers import volunteers_of
from motley_client.plain_yaml import UnreadableYaml, read_yaml
from web.rest.errors import faults_of

LARGEST_YAML_BYTES = 256 * 1024

REQUIRED = {"name", "command", "gpus"}
IN_REPLICAS = {"replicas", "gpus_per_replica"}
EMPTY: tuple[Any, ...] = (None, "", [], {})
DEFAULTS: dict[str, Any] = {
    "gpu_memory": 0,
    "cpus_per_gpu": 0,
    "memory_per_gpu": 0,
    "checkpoint": {"grace_seconds": 60, "restore_seconds": 30},
    "preemptible": True,
    "uneven_gang": False,
    "slurm_variables": False,
    "weight": 1.0,
    "retries": 0,
}


class SpecReader:
    """Fast validation of many specs: `JobSpec(data=...)` would copy all its fields for each.

    Results are memoised by field and value. As soon as a value is not valid, `JobSpec` itself validates the spec and
    words the faults, so that there is one set of rules.
    """

    def __init__(self) -> None:
        self._spec = _bound_spec()
        self._memo: dict[tuple[str, type, str], dict[str, Any] | None] = {}

    def read(self, data: Any) -> dict[str, Any]:
        """Validate a spec and return columns of `Job`; raise `InvalidSpec` with every fault."""
        columns = self._columns(data) if type(data) is dict else None
        return _parsed(JobSpec(data=data)) if columns is None else columns

    def _columns(self, data: dict[Any, Any]) -> dict[str, Any] | None:
        if not data.keys() >= REQUIRED or data.keys() & IN_REPLICAS:
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
        if key not in self._memo:
            self._memo[key] = self._validated(name, value)
        return self._memo[key]

    def _validated(self, name: Any, value: Any) -> dict[str, Any] | None:
        """Columns from one field; None if the field is unknown or its value not valid."""
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
    """One instance for all threads: its fields keep no state while they validate."""
    return JobSpec()


def parse_spec(data: Any) -> dict[str, Any]:
    """Validate a spec and return columns of `Job`; raise `InvalidSpec` with every fault."""
    return SpecReader().read(data)


def parse_change(data: Any) -> dict[str, Any]:
    """Validate a change and return columns of `Job`; raise `InvalidSpec` with every fault."""
    return _parsed(JobChange(data=data))


def _parsed(serializer: serializers.Serializer[Any]) -> dict[str, Any]:
    if not serializer.is_valid():
        raise InvalidSpec(faults_of(serializer.errors))
    return dict(serializer.validated_data)


def _volunteers_unasked(job: Job) -> str:
    return volunteers_of({"workdir": job.workdir, "secrets": job.secrets}, job.team)


def spec_of(job: Job) -> dict[str, Any]:
    """Spec of a job, without the fields that have their default."""
    written = {
        "name": job.name,
        "team": job.team.name,
        "command": job.command,
        "workdir": job.workdir,
        "code": job.code.digest if job.code else "",
        "image": job.image,
        "volunteers": "" if job.volunteers == _volunteers_unasked(job) else job.volunteers,
        "setup": job.setup,
        "env": job.env,
        "secrets": job.secrets,
        "mounts": job.mounts,
        **_size_of(job),
        "gpu_types": job.gpu_types,
        "gpu_memory": job.gpu_memory_mib and Memory().to_representation(job.gpu_memory_mib),
        "cpus_per_gpu": job.cpus_per_gpu,
        "memory_per_gpu": job.memory_per_gpu_mib and Memory().to_representation(job.memory_per_gpu_mib),
        "sensitivity": _sensitivity_of(job),
        "workload": job.workload,
        "rates": {kind: {int(gpus): rate for gpus, rate in by.items()} for kind, by in job.rates.items()},
        "batch_size": job.batch_size,
        "total_steps": job.total_steps,
        "checkpoint": {"grace_seconds": job.grace_s, "restore_seconds": float(job.restore_s)},
        "preemptible": job.preemptible,
        "uneven_gang": job.uneven_gang,
        "slurm_variables": job.slurm_variables,
        "weight": job.weight,
        "begin_time": _time_of(job.begin_time),
        "deadline": _time_of(job.deadline),
        "time_limit": job.time_limit_s and Seconds().to_representation(job.time_limit_s),
        "idle_limit": job.idle_limit_s and Seconds().to_representation(job.idle_limit_s),
        "retries": job.retries,
        "after": [{"job": str(need.parent_id), "on": need.on} for need in job.needs.all()],
        "tags": job.tags,
    }
    return {name: value for name, value in written.items() if value != DEFAULTS.get(name) and value not in EMPTY}


def _time_of(at: datetime | None) -> str | None:
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z") if at else None


def _sensitivity_of(job: Job) -> dict[str, Any]:
    written = dict(job.sensitivity)
    if written:
        written["cpu_curve"] = {int(cpus): value for cpus, value in written["cpu_curve"].items()}
    if size_mib := written.pop("dataset_mib", 0):
        written["dataset"] = Memory().to_representation(size_mib)
    return written


def _size_of(job: Job) -> dict[str, Any]:
    """GPUs, or replicas and the GPUs of each."""
    least, most = job.replicas
    size = {"min": least, "max": most} if most > least else least
    return {"replicas": size, "gpus_per_replica": job.gpus_per_replica} if job.gpus_per_replica else {"gpus": size}


def parse_yaml(text: str) -> Any:
    """Parse one YAML document; raise `InvalidSpec` with the line."""
    if len(text.encode(errors="replace")) > LARGEST_YAML_BYTES:
        raise InvalidSpec.at("", "too_large", "The YAML is larger than 256 KiB.")
    try:
        documents = read_yaml(text)
    except UnreadableYaml as error:
        raise InvalidSpec.at("", "not_yaml", f"This is not valid YAML: {error}") from error
    if len(documents) > 1:
        raise InvalidSpec.at("", "several", "There is more than one YAML document. Write one job, without '---'.")
    document = documents[0] if documents else None
    if (odd := _key_that_is_no_text(document)) is not None:
        raise InvalidSpec.at(
            "", "not_a_name", f"{odd!r} is not the name of a field: write one field per line, e.g. gpus: 1"
        )
    return document


def _key_that_is_no_text(document: Any) -> object:
    """The first key that is a number or the like; None: there is none."""
    keys = document if isinstance(document, Mapping) else ()
    return next((str(key) for key in keys if not isinstance(key, str)), None)


def write_yaml(spec: Mapping[str, Any]) -> str:
    return yaml.safe_dump(dict(spec), sort_keys=False, allow_unicode=True, width=120)
