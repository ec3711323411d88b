"""Templates of job specs on the new-job page."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class JobTemplate:
    title: str
    spec: dict[str, Any]


EMULATED = JobTemplate(
    "Hello world",
    {"name": "hello", "command": "python -m motley_client.sample --steps 500", "gpus": 1, "total_steps": 500},
)
JOB_TEMPLATES: dict[str, JobTemplate] = {
    "hello": EMULATED,
    "one-gpu": JobTemplate(
        "One GPU",
        {"name": "train", "command": "python train.py", "gpus": 1, "time_limit": "24h", "retries": 1},
    ),
    "torchrun": JobTemplate(
        "Several GPUs with torchrun",
        {
            "name": "train",
            "command": "torchrun train.py",
            "gpus": 4,
            "checkpoint": {"grace_seconds": 120, "restore_seconds": 30},
            "time_limit": "48h",
            "retries": 3,
        },
    ),
    "elastic": JobTemplate(
        "Elastic: 1 to 8 GPUs",
        {
            "name": "train",
            "command": "torchrun train.py",
            "gpus": {"min": 1, "max": 8},
            "total_steps": 100_000,
            "checkpoint": {"grace_seconds": 120, "restore_seconds": 30},
        },
    ),
    "sweep": JobTemplate(
        "Sweep, ten jobs at a time",
        {
            "name": "sweep",
            "command": "python train.py --seed $MOTLEY_ARRAY_INDEX",
            "gpus": 1,
            "array": {"start": 0, "end": 99, "at_a_time": 10},
        },
    ),
}
