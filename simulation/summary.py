"""The figures of several runs side by side: over seeds, as tables, as JSON and as CSV."""

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isnan
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, Literal

from simulation.comparing import Comparison

Number = float | int | None


@dataclass(frozen=True)
class Column:
    """A figure that people compare by: its name, what it is called, in which unit, and what is better."""

    figure: str
    title: str
    unit: str = ""
    better: Literal["less", "more"] | None = None

    def words(self, value: Number) -> str:
        if value is None:
            return "-"
        if self.unit == "%":
            return f"{100 * value:.1f}"
        whole = float(value).is_integer() or abs(value) >= 1e4
        return f"{value:,.0f}" if whole else f"{value:#.4g}".rstrip(".")

    def deviation_words(self, spread: "Spread") -> str:
        """The standard deviation, as exactly as the mean."""
        _, _, decimals = self.words(spread.mean).partition(".")
        scale = 100 if self.unit == "%" else 1
        return f"{scale * (spread.deviation or 0):.{len(decimals)}f}"

    @property
    def heading(self) -> str:
        return f"{self.title}, {self.unit}" if self.unit else self.title


COLUMNS = (
    Column("completed", "Jobs done", better="more"),
    Column("avg_jct_h", "Average JCT", "h", "less"),
    Column("median_jct_h", "Median JCT", "h", "less"),
    Column("p99_jct_h", "p99 JCT", "h", "less"),
    Column("makespan_h", "Makespan", "h", "less"),
    Column("queueing_h", "Not running", "h", "less"),
    Column("utilization", "GPUs busy", "%"),
    Column("gpu_hours_per_job", "GPU time per job", "h", "less"),
    Column("restarts_per_job", "Restarts per job", better="less"),
    Column("lost_gpu_hours", "GPU time lost", "h", "less"),
    Column("rho.mean", "Mean rho", better="less"),
    Column("rho.p99", "p99 rho", better="less"),
    Column("rho.worst", "Worst rho", better="less"),
    Column("rho.share_above_1", "Jobs with rho over 1", "%", "less"),
    Column("jain", "Jain's index", better="more"),
    Column("deadline_rate", "Deadlines met", "%", "more"),
    Column("cost", "Cost", "$", "less"),
    Column("decision_ms.p50", "Median decision", "ms"),
    Column("decision_ms.p95", "p95 decision", "ms"),
    Column("wall_s", "Simulated in", "s"),
)


@dataclass(frozen=True)
class Spread:
    """A figure over seeds: its mean, and its standard deviation where there are several."""

    mean: Number
    deviation: Number = None

    @classmethod
    def of(cls, values: Sequence[Number]) -> "Spread":
        known = [value for value in values if value is not None]
        return cls(fmean(known) if known else None, stdev(known) if len(known) > 1 else None)


def flat(figures: Mapping[str, Any]) -> dict[str, Number]:
    """Give every figure a name of its own: rho.mean for the mean of rho."""
    named: dict[str, Number] = {}
    for name, value in figures.items():
        inner = value.items() if isinstance(value, Mapping) else [("", value)]
        named |= {f"{name}.{part}" if part else name: number for part, number in inner}
    return named


def spreads(comparison: Comparison) -> dict[str, dict[str, Spread]]:
    """Each figure of each policy of which a run came to its end, over its seeds."""
    found = {}
    for policy in comparison.policies:
        if runs := [flat(outcome.figures) for outcome in comparison.of_policy(policy)]:
            found[policy] = {name: Spread.of([run[name] for run in runs]) for name in runs[0]}
    return found


def ratios(comparison: Comparison, column: Column) -> dict[str, Spread]:
    """How many times the figure of the first policy each other one has, seed by seed: on the same traces."""
    first, *others = spreads(comparison)
    found = {}
    for policy in others if column.better else ():
        seeds = [seed for seed in comparison.seeds if {(policy, seed), (first, seed)} <= comparison.outcomes.keys()]
        mine, its = ([flat(comparison.outcomes[p, s].figures)[column.figure] for s in seeds] for p in (policy, first))
        if known := [one / other for one, other in zip(mine, its, strict=True) if one is not None and other]:
            found[policy] = Spread.of(known)
    return found


def told_columns(of_policies: Mapping[str, Mapping[str, Spread]]) -> list[Column]:
    """Give the columns in which there is something to see."""
    return [c for c in COLUMNS if any(figures[c.figure].mean for figures in of_policies.values())]


def best(column: Column, of_policies: Mapping[str, Mapping[str, Spread]]) -> Number:
    """Give the best value of a column, or None where there is none, or all are alike."""
    means = [mean for figures in of_policies.values() if (mean := figures[column.figure].mean) is not None]
    if column.better is None or len(set(means)) < 2:
        return None
    return min(means) if column.better == "less" else max(means)


def told_of(comparison: Comparison, command: str) -> dict[str, Any]:
    """Give everything but what is drawn, run by run."""
    scenario = {name: str(v) if isinstance(v, Path) else v for name, v in vars(comparison.scenario).items()}
    return {
        "command": command,
        "trace": comparison.trace,
        "scenario": scenario,
        "policies": list(comparison.policies),
        "seeds": list(comparison.seeds),
        "note": comparison.note,
        "runs": [{"policy": p, "seed": s, **outcome.figures} for (p, s), outcome in _by_seed(comparison)],
        "failed": [{"policy": p, "seed": s, "reason": f.reason} for (p, s), f in comparison.failed.items()],
    }


def _by_seed(comparison: Comparison) -> Iterator[tuple[tuple[str, int], Any]]:
    """Outcomes in the order of the command, whichever was done first."""
    for policy in comparison.policies:
        for seed in comparison.seeds:
            if (policy, seed) in comparison.outcomes:
                yield (policy, seed), comparison.outcomes[policy, seed]


def figures_csv(comparison: Comparison) -> str:
    """Give a line for each run, and a column for each figure."""
    lines = [{"policy": p, "seed": s, **flat(outcome.figures)} for (p, s), outcome in _by_seed(comparison)]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(lines[0]) if lines else ["policy", "seed"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()


NUMBERS = ("arrival_s", "finish_s", "jct_s", "running_s", "gpu_s", "restarts", "rho", "in_time")
"""What is told of each job, beside its name."""


def jobs_csv(comparison: Comparison) -> str:
    """Give a line for each job of each run; empty where there is nothing to say."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["policy", "seed", "job", *NUMBERS])
    for (policy, seed), outcome in _by_seed(comparison):
        columns = [getattr(outcome.jobs, name).tolist() for name in NUMBERS]
        for name, *values in zip(outcome.jobs.names, *columns, strict=True):
            writer.writerow([policy, seed, name, *("" if isnan(value) else f"{value:.10g}" for value in values)])
    return text.getvalue()
