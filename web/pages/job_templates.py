"""Templates of job specs on the new-job page."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from motley_client.web_ports import notebook_spec


@dataclass(frozen=True)
class JobTemplate:
    title: str
    spec: dict[str, Any]
    make: Callable[[], dict[str, Any]] | None = None
    """Makes the spec anew for each job, where a part of it is random."""

    @property
    def fresh(self) -> dict[str, Any]:
        return self.make() if self.make else self.spec


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
    "notebook": JobTemplate("Notebook", {"command": "jupyter lab"}, make=notebook_spec),
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
