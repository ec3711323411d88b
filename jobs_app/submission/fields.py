"""Fields of a job's spec, with their validation."""

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from math import isfinite
from typing import Any

from django.utils import timezone
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from jobs_app.models.secret import NAME as SECRET_NAME
from jobs_app.models.team import LEAST_WEIGHT, MOST_WEIGHT
from jobs_app.submission.units import Seconds
from web.rest.bodies import DictOf, ListOf

MOST_GPUS = 100_000
LARGEST_BATCH = 2**31 - 1
LARGEST_RATE = 1e12
LEAST_RATE = 1e-6
MOST_RATES = 100
"""Of GPU types, and of gang sizes per GPU type."""
MOST_TAGS = 100
MOST_MOUNTS = 20
MOST_SECRETS = 50


RANGE = re.compile(r"^([1-9][0-9]{0,5})-([1-9][0-9]{0,5})$")
FROM_NOW = re.compile(r"now\s*\+\s*(\S.*)")

RESERVED_VARIABLES = {
    "the GPUs of the job": ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK"),
    "the place of rank 0": ("MASTER_ADDR", "MASTER_PORT", "PET_MASTER_ADDR", "PET_MASTER_PORT"),
    "the nodes and ranks of the job": ("PET_NNODES", "PET_NPROC_PER_NODE", "PET_NODE_RANK"),
    "how its ranks meet and end": ("PET_RDZV_ID", "PET_RDZV_BACKEND", "PET_SHUTDOWN_TIMEOUT"),
    "its place in Slurm": ("SLURM_JOB_ID", "SLURM_JOBID", "SLURMD_NODENAME", "SLURM_STEP_GPUS"),
}
"""Environment variables that the service sets, by what they say: those of a job would be lost."""
OF_SWEEPS = ("MOTLEY_PARAMS", "MOTLEY_MILESTONES")
"""Those of a trial, which a copy of it keeps."""


def reserved_fault(name: str) -> str | None:
    """Why a job may not set this environment variable, by `env` or as the name of a secret; None: it may."""
    if name.startswith("MOTLEY_") and name not in OF_SWEEPS:
        return "Names that begin with MOTLEY_ are reserved for Motley."
    said = next((what for what, names in RESERVED_VARIABLES.items() if name in names), None)
    return f"{name} is reserved: it says {said}, which Motley chooses. Leave it out." if said else None


def is_text(value: Any) -> bool:
    """Whether the value is a string without NUL and lone surrogates, which processes and databases refuse."""
    return isinstance(value, str) and not re.search(r"[\0\ud800-\udfff]", value)


def _by_gpu_type(data: Mapping[Any, Any]) -> dict[str, Any]:
    """The map with GPU types in lower case, as `GpuTypes` has them."""
    by_gpu_type = {str(name).lower(): value for name, value in data.items()}
    if len(by_gpu_type) < len(data):
        raise serializers.ValidationError("Name each GPU type once.")
    return by_gpu_type


class PlainText(serializers.CharField):
    """String of printable characters on one line: it is shown in tables and terminals."""

    def to_internal_value(self, data: Any) -> str:
        text = str(super().to_internal_value(data))
        if not text.isprintable():
            raise serializers.ValidationError("Use printable characters only, on one line.")
        return text


class Mounts(ListOf):
    """Names of storage: [data, scratch]. Each has its path in MOTLEY_MOUNT_<NAME>."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(child=PlainText(max_length=40), max_length=MOST_MOUNTS, **kwargs)

    def to_internal_value(self, data: Any) -> list[str]:
        names: list[str] = super().to_internal_value(data)
        if len({*names}) < len(names):
            raise serializers.ValidationError("Name each storage once.")
        return names


class GpuTypes(ListOf):
    """Names of GPU types: [a100, v100]. In any case: the names of the inventory are in lower case."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(child=serializers.CharField(max_length=40), max_length=MOST_RATES, **kwargs)

    def to_internal_value(self, data: Any) -> list[str]:
        return [name.lower() for name in super().to_internal_value(data)]


class SecretNames(ListOf):
    """Names of secrets of the submitter or the team: [WANDB_API_KEY]. Each is an environment variable of that name."""

    def __init__(self, **kwargs: Any) -> None:
        name = serializers.RegexField(
            rf"\A{SECRET_NAME}\Z",
            error_messages={"invalid": "Write the name of an environment variable: letters, digits and '_'."},
        )
        super().__init__(child=name, max_length=MOST_SECRETS, **kwargs)

    def to_internal_value(self, data: Any) -> list[str]:
        names: list[str] = super().to_internal_value(data)
        if len({*names}) < len(names):
            raise serializers.ValidationError("Name each secret once.")
        faults: Any = {place: [fault] for place, name in enumerate(names) if (fault := reserved_fault(name))}
        if faults:
            raise serializers.ValidationError(faults)
        return names


class ShellText(serializers.CharField):
    """Text that the shell runs, of any number of lines."""

    def to_internal_value(self, data: Any) -> str:
        if not is_text(data) or not data.strip():
            raise serializers.ValidationError("Write a command line for the shell, e.g. uv sync.")
        return str(data)


@extend_schema_field({"oneOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]})
class Command(serializers.Field[Any, Any, Any, Any]):
    """A string that the shell runs, or a list that is executed directly."""

    def to_internal_value(self, data: Any) -> str | list[str]:
        parts = data if isinstance(data, list) else [data]
        if not parts or not all(is_text(part) for part in parts) or not parts[0].strip():
            raise serializers.ValidationError("Write a command line, or a list of a program and its arguments.")
        return data  # type: ignore[no-any-return]


@extend_schema_field(
    {
        "oneOf": [
            {"type": "integer", "minimum": 1},
            {
                "type": "object",
                "properties": {"min": {"type": "integer", "minimum": 1}, "max": {"type": "integer", "minimum": 1}},
                "required": ["min", "max"],
                "additionalProperties": False,
            },
            {"type": "string", "pattern": RANGE.pattern, "examples": ["1-8"]},
        ]
    }
)
class Gpus(serializers.Field[dict[str, int], Any, Any, Any]):
    """GPUs of a gang: 4, or {min: 1, max: 16} for an elastic job, in sizes of min, its doublings below max, and max.

    A range may also be written as for the command's option: 1-16.
    """

    noun = "GPUs"
    columns = ("gpus_min", "gpus_max")

    def to_internal_value(self, data: Any) -> dict[str, int]:
        asked = dict(data) if isinstance(data, Mapping) else _range_of(data)
        if set(asked) != {"min", "max"} or not all(type(value) is int for value in asked.values()):
            raise serializers.ValidationError(f"Write a whole number of {self.noun}, or 1-16, or {{min: 1, max: 16}}.")
        least, most = asked["min"], asked["max"]
        if not 1 <= least <= most <= MOST_GPUS:
            raise serializers.ValidationError(
                f"Must be from 1 to {MOST_GPUS:,}, and the minimum must not exceed the maximum."
            )
        return dict(zip(self.columns, (least, most), strict=True))


def _range_of(data: Any) -> dict[str, Any]:
    """Least and most of `1-16`, or of a number."""
    found = RANGE.fullmatch(data) if isinstance(data, str) else None
    least, most = map(int, found.groups()) if found else (data, data)
    return {"min": least, "max": most}


class Replicas(Gpus):
    """Replicas of a hybrid-parallel job, in place of GPUs: 2, or {min: 1, max: 4} for an elastic one."""

    noun = "replicas"
    columns = ("replicas_min", "replicas_max")


@extend_schema_field(
    {
        "oneOf": [
            {"type": "integer", "minimum": 1},
            {"type": "object", "additionalProperties": {"type": "integer", "minimum": 1}, "minProperties": 1},
        ]
    }
)
class ReplicaSize(serializers.Field[int | dict[str, int], Any, Any, Any]):
    """GPUs of one replica of a hybrid-parallel job: 4, or {a100: 2, v100: 4} for the GPU types that it may use."""

    def to_internal_value(self, data: Any) -> int | dict[str, int]:
        asked = _by_gpu_type(data) if isinstance(data, Mapping) else {"": data}
        if not 0 < len(asked) <= MOST_RATES or not all(type(gpus) is int for gpus in asked.values()):
            raise serializers.ValidationError("Write a whole number of GPUs, or one by GPU type: {a100: 2, v100: 4}.")
        if not all(1 <= gpus <= MOST_GPUS and is_text(name) for name, gpus in asked.items()):
            raise serializers.ValidationError(f"Each number must be from 1 to {MOST_GPUS:,}.")
        return asked if isinstance(data, Mapping) else asked[""]


@extend_schema_field(
    {
        "type": "object",
        "additionalProperties": {
            "oneOf": [{"type": "number"}, {"type": "object", "additionalProperties": {"type": "number"}}]
        },
    }
)
class Rates(serializers.Field[dict[str, Any], Any, Any, Any]):
    """Declared throughputs in steps/s of the whole job: {a100: 24.1, v100: {1: 10.2, 2: 19.0}}."""

    def to_internal_value(self, data: Any) -> dict[str, dict[str, float]]:
        if not isinstance(data, Mapping):
            raise serializers.ValidationError("Write a map from GPU type to steps/s, e.g. {a100: 24.1}.")
        if len(data) > MOST_RATES:
            raise serializers.ValidationError(f"Write rates for at most {MOST_RATES} GPU types.")
        by_gpu_type = {gpu_type: self._by_gpus(value) for gpu_type, value in _by_gpu_type(data).items()}
        faulty = [
            gpu_type
            for gpu_type, by_gpus in by_gpu_type.items()
            if not (is_text(gpu_type) and self._are_rates(by_gpus))
        ]
        if faulty:
            text = f"Write steps/s from {LEAST_RATE:g} to {LARGEST_RATE:g}, or up to {MOST_RATES} of {{GPUs: steps/s}}."
            raise serializers.ValidationError({gpu_type: [text] for gpu_type in faulty})
        return {gpu_type: {str(gpus): float(rate) for gpus, rate in by.items()} for gpu_type, by in by_gpu_type.items()}

    def _by_gpus(self, value: Any) -> Mapping[Any, Any]:
        """A bare number is the rate of the smallest gang, stored under "" until the gang is known."""
        return value if isinstance(value, Mapping) else {"": value}

    def _are_rates(self, by_gpus: Mapping[Any, Any]) -> bool:
        return len(by_gpus) <= MOST_RATES and all(
            type(rate) in (int, float)
            and LEAST_RATE <= rate <= LARGEST_RATE
            and re.fullmatch(r"([1-9]\d{0,5})?", str(gpus))
            for gpus, rate in by_gpus.items()
        )


@extend_schema_field({"type": "object", "additionalProperties": {"type": "number"}, "minProperties": 1})
class CpuCurve(serializers.Field[dict[str, float], Any, Any, Any]):
    """Throughput by CPUs per GPU with all data in memory, in any unit: {1: 0.3, 3: 1.0, 6: 1.75}."""

    def to_internal_value(self, data: Any) -> dict[str, float]:
        if not isinstance(data, Mapping) or not 0 < len(data) <= MOST_RATES:
            text = "Write a map from CPUs per GPU to throughput, e.g. {1: 0.3, 3: 1.0}"
            raise serializers.ValidationError(f"{text}, of at most {MOST_RATES} points.")
        curve = {str(cpus): value for cpus, value in data.items()}
        if faulty := [cpus for cpus, value in curve.items() if not self._is_point(cpus, value)]:
            text = f"Write 1 to 9999 CPUs, and a throughput from {LEAST_RATE:g} to {LARGEST_RATE:g}."
            raise serializers.ValidationError({cpus: [text] for cpus in faulty})
        return {cpus: float(curve[cpus]) for cpus in sorted(curve, key=int)}

    def _is_point(self, cpus: str, value: Any) -> bool:
        whole = re.fullmatch(r"[1-9]\d{0,3}", cpus, re.ASCII)
        return bool(whole) and type(value) in (int, float) and LEAST_RATE <= value <= LARGEST_RATE


class Number(serializers.FloatField):
    """Finite float: Python reads "nan" and "inf" as floats, too."""

    def to_internal_value(self, data: Any) -> float:
        number = super().to_internal_value(data)
        if not isfinite(number):
            raise serializers.ValidationError("Write a finite number.")
        return number


class FutureTime(serializers.DateTimeField):
    """Date and time in the future, or `now+2h`. Words such as `tomorrow` need a zone, which the command has."""

    default_error_messages = dict.fromkeys(
        ("invalid", "date", "make_aware", "overflow"),
        "Write a date and time as YYYY-MM-DDThh:mm:ssZ, e.g. 2030-12-31T18:00:00Z, or a time from now, e.g. now+2h.",
    )

    def to_internal_value(self, value: Any) -> datetime:
        at = self._from_now(value) or super().to_internal_value(value)
        if at <= timezone.now():
            raise serializers.ValidationError("This time has passed. Give a time in the future, or leave it out.")
        return at

    def _from_now(self, value: Any) -> datetime | None:
        later = FROM_NOW.fullmatch(value) if isinstance(value, str) else None
        return timezone.now() + timedelta(seconds=Seconds().to_internal_value(later[1])) if later else None


class JobWeight(Number):
    """Weight within the team; the team's limit is checked at admission."""

    default_error_messages = dict.fromkeys(
        ("invalid", "max_value", "min_value", "max_string_length"),
        f"Write a number from {LEAST_WEIGHT:f} to {MOST_WEIGHT:,.0f}; 1 is usual.",
    )

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(min_value=LEAST_WEIGHT, max_value=MOST_WEIGHT, **kwargs)


class Tags(DictOf):
    """Tags by name: {project: imagenet}. A name has no '=', which separates name and value in a filter."""

    child = PlainText(max_length=100, allow_blank=True)

    def to_internal_value(self, data: Any) -> dict[str, str]:
        if isinstance(data, Mapping) and len(data) > MOST_TAGS:
            raise serializers.ValidationError(f"A job may have at most {MOST_TAGS} tags.")
        tags: dict[str, str] = super().to_internal_value(data)
        faulty = [name for name in tags if not (0 < len(name) <= 100 and name.isprintable()) or "=" in name]
        if faulty:
            text = "The name of a tag must have 1 to 100 printable characters, without '='."
            raise serializers.ValidationError({name: [text] for name in faulty})
        return tags
