"""Specs of the demo's sample jobs; without Django, for benchmarks simulate them."""

from collections.abc import Iterator
from typing import Any

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
