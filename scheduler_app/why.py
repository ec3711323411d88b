"""How fast a job would be on each GPU type, and why it is on the one that it is on. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class RateRow:
    """One configuration; `relative`: its rate per GPU over the slowest one; `price`: what the round asked for a GPU."""

    gpu_type: str
    gpus: int
    nodes: int
    rate: float
    relative: float
    source: str
    share: float | None
    price: float | None
    here: bool


def rate_rows(rates: Iterable[Mapping[str, Any]], *, here: str | None, prices: Mapping[str, float]) -> list[RateRow]:
    """The rates that the latest round counted on, the fastest per GPU first."""
    rates = list(rates)
    slowest = min((rate["rate"] / rate["gpus"] for rate in rates), default=1.0)
    return [
        RateRow(
            gpu_type=rate["gpu_type"],
            gpus=rate["gpus"],
            nodes=rate["nodes"],
            rate=rate["rate"],
            relative=rate["rate"] / rate["gpus"] / slowest,
            source=rate["source"],
            share=rate["share"],
            price=prices.get(rate["gpu_type"]),
            here=rate["gpu_type"] == here,
        )
        for rate in rates
    ]


def why_here(rows: Sequence[RateRow]) -> str:
    """One sentence; empty where no round has considered the job."""
    if not rows:
        return ""
    by_type = {row.gpu_type: row for row in reversed(rows)}
    speeds = ", ".join(
        f"{kind.upper()} {row.relative:.2g}x" for kind, row in sorted(by_type.items(), key=lambda i: -i[1].relative)
    )
    held = next((row for row in rows if row.here), None)
    if held is None:
        return f"{speeds}."
    if held.gpu_type == rows[0].gpu_type:
        return f"{speeds}; it runs on {held.gpu_type.upper()}, the fastest for it."
    return f"{speeds}; it runs on {held.gpu_type.upper()} because {_because(rows, held)}."


def _because(rows: Sequence[RateRow], held: RateRow) -> str:
    best = rows[0]
    parts = []
    if best.share is not None:
        shares = ", ".join(f"{_share_of(rows, row.gpu_type):.0%} on {row.gpu_type.upper()}" for row in (best, held))
        parts.append(f"its fair share of time is {shares}")
    if best.price and held.price is not None and best.price > held.price:
        more = f"{best.price / held.price:.2g} times as much as" if held.price else "while nobody else gains from"
        parts.append(f"one more {best.gpu_type.upper()} is worth {more} one more {held.gpu_type.upper()}")
    return ", and ".join(parts) or f"others gain more from {best.gpu_type.upper()}"


def _share_of(rows: Iterable[RateRow], gpu_type: str) -> float:
    return sum(row.share or 0.0 for row in rows if row.gpu_type == gpu_type)
