"""Comparison of a job's throughput across GPU types, and why it runs on its current type. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jobs_app.models import Attempt


@dataclass(frozen=True)
class RateComparison:
    """Throughput in one configuration; `relative`: per GPU, as a multiple of the slowest; `price`: the shadow price.

    Without a rate of the workload there are no steps/s, and `relative` is by specifications and other workloads.
    """

    gpu_type: str
    gpus: int
    nodes: int
    rate: float | None
    low: float | None
    high: float | None
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
    return [
        RateComparison(
            gpu_type=rate["gpu_type"],
            gpus=rate["gpus"],
            nodes=rate["nodes"],
            rate=rate["rate"],
            low=rate["low"],
            high=rate["high"],
            relative=rate["relative"],
            source=rate["source"],
            runs=rate["runs"],
            share=rate["share"],
            price=prices.get(rate["gpu_type"]),
            is_current=rate["gpu_type"] == current,
        )
        for rate in rates
    ]


def explain_placement(rows: Sequence[RateComparison]) -> str:
    """One sentence on why the job runs where it does; empty where no round has considered the job."""
    if not rows:
        return ""
    by_type = {row.gpu_type: row for row in reversed(rows)}
    speeds = ", ".join(
        f"{kind.upper()} {row.relative:.2g}x" for kind, row in sorted(by_type.items(), key=lambda i: -i[1].relative)
    )
    held, of_what = next((row for row in rows if row.is_current), None), _of_what(rows)
    if held is None:
        return f"{of_what}: {speeds}."
    if len(by_type) == 1:
        return f"It runs on {held.gpu_type.upper()}, the only type in service on which it can."
    if held.gpu_type == rows[0].gpu_type:
        fastest = "" if _none_known(rows) else ", its fastest type"
        return f"{of_what}: {speeds}; it runs on {held.gpu_type.upper()}{fastest}."
    return f"{of_what}: {speeds}; it runs on {held.gpu_type.upper()} because {_because(rows, held)}."


def _of_what(rows: Sequence[RateComparison]) -> str:
    """What the speeds of the sentence are."""
    if _none_known(rows):
        return "Speed per GPU by the types' specifications and other workloads, as no rate of its workload is known yet"
    return "Throughput per GPU"


def _none_known(rows: Sequence[RateComparison]) -> bool:
    return all(row.rate is None for row in rows)


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
