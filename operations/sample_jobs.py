"""Sample jobs of the demo."""

from collections.abc import Iterator
from typing import Any

from django.contrib.auth.models import User

from jobs_app.models import Job
from jobs_app.submission.submit import submit_job

MODELS = {
    "resnet50": ("vision", {"t4": 8.0, "v100": 22.0, "a100": 45.0}, 3000),
    "yolo": ("vision", {"t4": 14.0, "v100": 25.0, "a100": 32.0}, 2200),
    "bert": ("language", {"t4": 4.0, "v100": 15.0, "a100": 44.0}, 2600),
    "lstm": ("language", {"t4": 18.0, "v100": 24.0, "a100": 27.0}, 2000),
}
"""Team, steps/s by GPU type, and steps of the shortest job, by model."""
GANGS = (1, 2, 4, 1, 1, 2, 2, 1, 4, 1, 2, 1, 1, 4)
FIRST = len(GANGS)
"""Sample jobs that the demo begins with."""
UNFINISHED = 20
"""Sample jobs that may be unfinished at most when another one is submitted."""


def sample_jobs() -> Iterator[dict[str, Any]]:
    """Specs of the first sample jobs; emulated GPUs run at the rates declared in them."""
    return map(sample, range(FIRST))


def sample(position: int) -> dict[str, Any]:
    """Spec of the sample job at a position, from 0, of a sequence without end."""
    name = list(MODELS)[position % len(MODELS)]
    team, rates, steps = MODELS[name]
    gpus = GANGS[position % len(GANGS)]
    return sample_job(f"{name}-{position + 1}", team, rates=rates, gpus=gpus, steps=steps * (1 + position % 3))


def sample_job(name: str, team: str, *, rates: dict[str, float], gpus: int, steps: int) -> dict[str, Any]:
    """Spec of one sample training, whose rate grows slightly less than linearly with its gang."""
    return {
        "name": name,
        "team": team,
        "command": ["python", "-m", "motley_client.sample", "--steps", str(steps)],
        "gpus": gpus,
        "rates": {kind: round(rate * gpus**0.9, 2) for kind, rate in rates.items()},
        "total_steps": steps,
        "checkpoint": {"grace_seconds": 20, "restore_seconds": 2},
        "tags": {"demo": "yes"},
    }


def submit_another(owner: User) -> bool:
    """Submit the next sample job, unless the demo has enough unfinished ones; returns whether it did."""
    samples = Job.objects.filter(owner=owner, tags__demo="yes")
    if samples.unfinished().count() >= UNFINISHED:
        return False
    submit_job(sample(max(samples.count(), FIRST)), owner=owner)
    return True
