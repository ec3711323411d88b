"""Summary of a comparison: statistics over seeds, as tables, JSON and CSV."""

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isnan
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, Literal

from simulation.results.comparison import Comparison
from simulation.results.time_units import HOURS, unit_of
from simulation.traces.motley_csv import as_text

Number = float | int | None


@dataclass(frozen=True)
class Column:
    """A metric that is compared: name, title, unit, whether less or more is better, and the unit's number per hour."""

    figure: str
    title: str
    unit: str = ""
    better: Literal["less", "more"] | None = None
    scale: float = 1.0

    def in_unit_of(self, hours: Iterable[Number]) -> "Column":
        """The column in the unit in which these times are compared, if it is of times in hours."""
        if self.unit != HOURS.name:
            return self
        unit = unit_of(hours)
        return replace(self, unit=unit.name, scale=unit.per_hour)

    def words(self, value: Number) -> str:
        if value is None:
            return "-"
        if self.unit == "%":
            return f"{100 * value:.1f}"
        value = self.scale * value
        whole = float(value).is_integer() or abs(value) >= 1e4
        return f"{value:,.0f}" if whole else f"{value:#.4g}".rstrip(".")

    def deviation_words(self, spread: "SeedStatistics") -> str:
        """Standard deviation with as many decimals as the mean."""
        _, _, decimals = self.words(spread.mean).partition(".")
        scale = 100 if self.unit == "%" else self.scale
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
    Column("above_bound.avg_jct", "Average JCT above the bound", "%", "less"),
    Column("above_bound.makespan", "Makespan above the bound", "%", "less"),
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


UTILIZATION_NOTE = (
    "Utilization is a mean over the makespan: after the last arrival a few long jobs may keep few GPUs busy for long."
)


@dataclass(frozen=True)
class SeedStatistics:
    """A metric over seeds: mean and, with several seeds, standard deviation."""

    mean: Number
    deviation: Number = None

    @classmethod
    def of(cls, values: Sequence[Number]) -> "SeedStatistics":
        known = [value for value in values if value is not None]
        return cls(fmean(known) if known else None, stdev(known) if len(known) > 1 else None)


def flat(figures: Mapping[str, Any]) -> dict[str, Number]:
    """Flatten nested metrics to dotted names, such as rho.mean."""
    named: dict[str, Number] = {}
    for name, value in figures.items():
        inner = value.items() if isinstance(value, Mapping) else [("", value)]
        named |= {f"{name}.{part}" if part else name: number for part, number in inner}
    return named


def seed_statistics(comparison: Comparison) -> dict[str, dict[str, SeedStatistics]]:
    """Statistics over seeds of each metric, for each policy with a finished run."""
    found = {}
    for policy in comparison.policies:
        if runs := [flat(outcome.figures) for outcome in comparison.of_policy(policy)]:
            found[policy] = {name: SeedStatistics.of([run[name] for run in runs]) for name in runs[0]}
    return found


def ratios(comparison: Comparison, column: Column) -> dict[str, SeedStatistics]:
    """Ratio of each policy's metric to the first policy's, seed by seed on the same traces."""
    first, *others = seed_statistics(comparison)
    found = {}
    for policy in others if column.better else ():
        seeds = [seed for seed in comparison.seeds if {(policy, seed), (first, seed)} <= comparison.outcomes.keys()]
        mine, its = ([flat(comparison.outcomes[p, s].figures)[column.figure] for s in seeds] for p in (policy, first))
        if known := [one / other for one, other in zip(mine, its, strict=True) if one is not None and other]:
            found[policy] = SeedStatistics.of(known)
    return found


def told_columns(of_policies: Mapping[str, Mapping[str, SeedStatistics]]) -> list[Column]:
    """Columns with a value other than 0 for some policy; times in the unit in which they are compared."""
    known = [c for c in COLUMNS if all(c.figure in figures for figures in of_policies.values())]
    means = {c: [figures[c.figure].mean for figures in of_policies.values()] for c in known}
    return [c.in_unit_of(values) for c, values in means.items() if any(values)]


def best(column: Column, of_policies: Mapping[str, Mapping[str, SeedStatistics]]) -> Number:
    """Best value of a column, or None if there is none or all are equal."""
    means = [mean for figures in of_policies.values() if (mean := figures[column.figure].mean) is not None]
    if column.better is None or len(set(means)) < 2:
        return None
    return min(means) if column.better == "less" else max(means)


def told_of(comparison: Comparison, command: str) -> dict[str, Any]:
    """The comparison as JSON data, without the charts' data."""
    scenario = {name: str(v) if isinstance(v, Path) else v for name, v in vars(comparison.scenario).items()}
    return {
        "command": command,
        "trace": comparison.trace,
        "scenario": scenario,
        "policies": list(comparison.policies),
        "seeds": list(comparison.seeds),
        "note": comparison.note,
        "runs": [{"policy": p, "seed": s, **outcome.figures} for (p, s), outcome in _by_seed(comparison)],
        "bounds": [{"trace": str(trace), **bound.figures} for trace, bound in comparison.bounds.items()],
        "failed": [{"policy": p, "seed": s, "reason": f.reason} for (p, s), f in comparison.failed.items()],
    }


def _by_seed(comparison: Comparison) -> Iterator[tuple[tuple[str, int], Any]]:
    """Results in the order of the command."""
    for policy in comparison.policies:
        for seed in comparison.seeds:
            if (policy, seed) in comparison.outcomes:
                yield (policy, seed), comparison.outcomes[policy, seed]


def figures_csv(comparison: Comparison) -> str:
    """CSV with one line per run and one column per metric."""
    lines = [{"policy": p, "seed": s, **flat(outcome.figures)} for (p, s), outcome in _by_seed(comparison)]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(lines[0]) if lines else ["policy", "seed"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()


NUMBERS = ("arrival_s", "finish_s", "jct_s", "running_s", "gpu_s", "restarts", "rho", "in_time")
"""Columns of jobs.csv beside the name."""


def jobs_csv(comparison: Comparison) -> str:
    """CSV with one line per job of each run; undefined values are empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["policy", "seed", "job", *NUMBERS])
    for (policy, seed), outcome in _by_seed(comparison):
        columns = [getattr(outcome.jobs, name).tolist() for name in NUMBERS]
        for name, *values in zip(outcome.jobs.names, *columns, strict=True):
            writer.writerow(
                [policy, seed, as_text(name), *("" if isnan(value) else f"{value:.10g}" for value in values)]
            )
    return text.getvalue()
