"""Cost and run time of each configuration of a plan, and which of them are Pareto-optimal. No queries."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from django.db import models

from allocation.problem import normaliser
from allocation.types import Floats, Ints
from estimation.boosted_durations import DurationEstimator
from insight_app.explain.remaining_work import ended_jobs, tells_of_few
from scheduler_app.round.inputs import JobRow
from scheduler_app.round.lengths import EndedDurations, lengths_of

TOLERANCE = 1e-9
"""Relative difference up to which two costs or times are equal: they come from floating-point rates."""
NOWHERE = "Cost and time are not shown: no GPU type can run the job."
UNKNOWN = (
    "Cost and time are not shown: the job does not state its total steps, and too few jobs have ended to estimate "
    "its run time."
)
UNKNOWN_RATE = "Cost and time are not shown: how fast the job runs is not known."
IN_GPU_HOURS = "The cost is in GPU-hours, because no price per hour is set for"

OthersWait = Callable[[str, int, float], float | None]


class CostUnit(models.TextChoices):
    """Unit of costs: the currency of the GPU types' prices, or GPU-hours where a type has no price."""

    PRICE = "price", "in the currency of the prices"
    GPU_HOURS = "gpu_hours", "in GPU-hours"


class Candidate(NamedTuple):
    """A configuration in which the job could run: its rate in steps/s, and the cost per hour of all its GPUs."""

    gpu_type: str
    gpus: int
    rate: float
    cost_per_hour: float


class Length(NamedTuple):
    """Steps of a job; `detail` says from which ended jobs they are estimated, and is empty if the job states them."""

    steps: float
    detail: str = ""


@dataclass(frozen=True)
class CostOption:
    """Run time and cost of the job in a configuration."""

    gpu_type: str
    gpus: int
    run_seconds: float
    cost: float
    preferred: bool
    """Whether it is the fastest, as in the plan."""
    pareto_optimal: bool
    """Whether no other one is better in cost or time without being worse in the other."""
    others_wait_h: float | None = None
    """Hours that others wait for it by the plan of rounds, if it begins now; None: not known."""


@dataclass(frozen=True)
class CostAndTime:
    """Configurations by run time and cost, the fastest first; without any, `why_none` says why."""

    options: Sequence[CostOption]
    unit: CostUnit
    note: str = ""
    why_none: str = ""


def cost_and_time(
    candidates: Sequence[Candidate],
    length: Length | None,
    *,
    unknown: str = UNKNOWN,
    others_wait_h: OthersWait = lambda *_: None,
) -> CostAndTime:
    """Cost and time of a job of this length on each candidate, the fastest of which comes first. Pure.

    `unknown` says why there is no length; `others_wait_h` what so many GPUs of a type for so many seconds cost others.
    """
    unpriced = sorted({one.gpu_type for one in candidates if not one.cost_per_hour})
    unit = CostUnit.GPU_HOURS if unpriced else CostUnit.PRICE
    if not candidates or length is None:
        return CostAndTime([], unit, why_none=unknown if candidates else NOWHERE)
    points = [_point(one, length, unit) for one in candidates]
    options = [
        CostOption(one.gpu_type, one.gpus, *point, n == 0, best, others_wait_h(one.gpu_type, one.gpus, point[0]))
        for n, (one, point, best) in enumerate(zip(candidates, points, pareto_optimal(points), strict=True))
    ]
    return CostAndTime(options, unit, note=_note(length, unpriced))


def pareto_optimal(points: Sequence[tuple[float, float]]) -> list[bool]:
    """For each point of two costs whether no other dominates it: is no worse in both, and better in one. Pure."""
    return [not any(_dominates(other, point) for other in points) for point in points]


def _dominates(one: tuple[float, float], other: tuple[float, float]) -> bool:
    pairs = list(zip(one, other, strict=True))
    return all(a <= b * (1 + TOLERANCE) for a, b in pairs) and any(a < b * (1 - TOLERANCE) for a, b in pairs)


def _point(one: Candidate, length: Length, unit: CostUnit) -> tuple[float, float]:
    """Run time in seconds, and cost."""
    seconds = length.steps / one.rate
    per_hour = one.gpus if unit is CostUnit.GPU_HOURS else one.cost_per_hour
    return seconds, seconds / 3600 * per_hour


def _note(length: Length, unpriced: Sequence[str]) -> str:
    told = f"Run times are estimated from {length.detail}." if length.detail else ""
    in_gpu_hours = f"{IN_GPU_HOURS} {', '.join(name.upper() for name in unpriced)}." if unpriced else ""
    return f"{told} {in_gpu_hours}".strip()


def estimated_length(
    job: JobRow, estimator: DurationEstimator, *, rate: Floats, usage: Ints, capacity: Ints, units: Ints, owner: str
) -> Length | None:
    """Length of a job that declares no steps, as a round estimates it from ended jobs; None without similar jobs.

    rate (K,) steps/s, 0 where it cannot run; usage (n, K), capacity (n,) and units (n,) GPUs.
    """
    base_gpus, base_rate = normaliser(rate[None], usage, capacity, np.maximum(units[None], 1))
    if not base_rate[0]:
        return None
    ended, fresh = EndedDurations({}, estimator, {}), np.zeros(1)
    lengths = lengths_of([job], ended, base_gpus=base_gpus, base_rate=base_rate, worked_s=fresh)
    found = lengths.durations[0]
    if found is None or tells_of_few(found):
        return None
    return Length(float(lengths.remaining_steps[0]), ended_jobs(found, owner))
