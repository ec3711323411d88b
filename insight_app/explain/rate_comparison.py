"""Comparison of a job's throughput across GPU types, and why it runs on its current type. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jobs_app.models import Attempt, Job

OF_OTHERS = {Attempt.RateSource.ESTIMATED, Attempt.RateSource.COMPLETED}
"""Sources of rates that need nothing of the workload itself; what was measured of it are their `runs`."""


@dataclass(frozen=True)
class RateComparison:
    """Throughput in one configuration; `relative`: per GPU, as a multiple of the slowest; `price`: the shadow price."""

    gpu_type: str
    gpus: int
    nodes: int
    rate: float
    low: float
    high: float
    relative: float
    source: str
    runs: int
    share: float | None
    price: float | None
    is_current: bool


def compare_rates(
    rates: Iterable[Mapping[str, Any]], *, current: str | None, prices: Mapping[str, float]
) -> list[RateComparison]:
    """Throughputs that the latest round used, the fastest per GPU first."""
    rates = list(rates)
    slowest = min((rate["rate"] / rate["gpus"] for rate in rates), default=1.0)
    return [
        RateComparison(
            gpu_type=rate["gpu_type"],
            gpus=rate["gpus"],
            nodes=rate["nodes"],
            rate=rate["rate"],
            low=rate["low"],
            high=rate["high"],
            relative=rate["rate"] / rate["gpus"] / slowest,
            source=rate["source"],
            runs=rate["runs"],
            share=rate["share"],
            price=prices.get(rate["gpu_type"]),
            is_current=rate["gpu_type"] == current,
        )
        for rate in rates
    ]


def has_no_steps(job: Job, rates: Iterable[Mapping[str, Any]]) -> bool:
    """Whether nothing is known of the job's steps: any rate of it is made of specifications and of other workloads."""
    rates = list(rates)
    silent = job.step_at is None and not job.total_steps
    return silent and bool(rates) and all(rate["source"] in OF_OTHERS and not rate["runs"] for rate in rates)


def known_rates(job: Job, rates: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rates for pages and REST: null (not known) if nothing is known of the job's steps."""
    unknown = dict.fromkeys(("rate", "low", "high", "spread")) if has_no_steps(job, rates) else {}
    return [{**rate, **unknown} for rate in rates]


def explain_placement(rows: Sequence[RateComparison]) -> str:
    """One sentence on why the job runs where it does; empty where no round has considered the job."""
    if not rows:
        return ""
    by_type = {row.gpu_type: row for row in reversed(rows)}
    speeds = ", ".join(
        f"{kind.upper()} {row.relative:.2g}x" for kind, row in sorted(by_type.items(), key=lambda i: -i[1].relative)
    )
    held = next((row for row in rows if row.is_current), None)
    if held is None:
        return f"Throughput per GPU: {speeds}."
    if len(by_type) == 1:
        return f"It runs on {held.gpu_type.upper()}, the only type in service on which it can."
    if held.gpu_type == rows[0].gpu_type:
        return f"Throughput per GPU: {speeds}; it runs on {held.gpu_type.upper()}, its fastest type."
    return f"Throughput per GPU: {speeds}; it runs on {held.gpu_type.upper()} because {_because(rows, held)}."


def explain_measurement(attempt: Attempt | None) -> str:
    """One sentence on an attempt that was placed to measure its rate; empty for any other."""
    if attempt is None or not attempt.measures:
        return ""
    return (
        f"It is measuring on {attempt.gpu_type.name.upper()}: of the rates of its workload that are not known, "
        "its rate there would change the choice of GPU type most."
    )


def _because(rows: Sequence[RateComparison], held: RateComparison) -> str:
    best = rows[0]
    parts = []
    if best.share is not None:
        shares = ", ".join(f"{_share_of(rows, row.gpu_type):.0%} on {row.gpu_type.upper()}" for row in (best, held))
        parts.append(f"its fair share of time is {shares}")
    if best.price and held.price is not None and best.price > held.price:
        parts.append(_worth(best, held))
    return ", and ".join(parts) or f"other jobs gain more from {best.gpu_type.upper()}"


def _worth(best: RateComparison, held: RateComparison) -> str:
    """Shadow price of a GPU of the better type, compared with that of the type held."""
    one, other = f"one more {best.gpu_type.upper()}", f"one more {held.gpu_type.upper()}"
    if not held.price:
        return f"other jobs would gain from {one}, and none from {other}"
    return f"{one} is worth {(best.price or 0.0) / held.price:.2g} times as much as {other}"


def _share_of(rows: Iterable[RateComparison], gpu_type: str) -> float:
    return sum(row.share or 0.0 for row in rows if row.gpu_type == gpu_type)
