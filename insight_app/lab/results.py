"""Result of a lab run: what really happened, its simulation, and each policy with winners and losers. Pure."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

import numpy as np

from allocation.types import Floats
from insight_app.lab.history import History, Run
from simulation.clock.metrics import HOUR_S
from simulation.results.comparison import Comparison, RunResult
from simulation.results.summary import flat
from simulation.results.time_units import format_duration
from simulation.traces.trace import TraceJob

FIGURES = (
    "completed",
    "cannot_run",
    "avg_jct_h",
    "p99_jct_h",
    "queueing_h",
    "makespan_h",
    "utilization",
    "restarts_per_job",
    "overhead",
    "rho.mean",
    "rho.p99",
)
"""Of each simulated policy, as in the simulator's report; the energy comes to them."""
COMPARED = ("avg_jct_h", "queueing_h", "makespan_h", "utilization")
"""Those that are known of what really happened, too, and whose error is shown."""
FAR_OFF = 0.25
"""Error in mean JCT from which the summary warns."""

SIZES = ((1, "1"), (4, "2 to 4"), (8, "5 to 8"))
"""Classes of jobs by the fewest GPUs that they may run on: the most of a class, and its name."""
LARGEST = "more than 8"
QUANTILES = 101
"""Points of a distribution: every per cent."""
INTERVALS = 50
"""Of the time in which GPUs were busy."""

Figures = Mapping[str, float | None]


def actual_figures(
    jobs: Sequence[TraceJob], history: History, *, gpus: int, power_w: Mapping[str, float]
) -> dict[str, float | None]:
    """Actual figures of the jobs of the trace; energy is GPU time times the power of the GPU types."""
    times = [history.times[UUID(job.name)] for job in jobs]
    jct_h = np.array([(one.finished_at - one.arrived_at).total_seconds() for one in times]) / HOUR_S
    ran_h = np.array([one.ran_s for one in times]) / HOUR_S
    runs = [run for job in jobs for run in history.runs.get(UUID(job.name), ())]
    makespan_s = (max(one.finished_at for one in times) - min(one.arrived_at for one in times)).total_seconds()
    return {
        "avg_jct_h": float(jct_h.mean()),
        "p99_jct_h": float(np.percentile(jct_h, 99)),
        "queueing_h": float((jct_h - ran_h).mean()),
        "makespan_h": makespan_s / HOUR_S,
        "utilization": sum(run.gpus * run.seconds for run in runs) / max(gpus * makespan_s, 1e-9),
        "restarts_per_job": len(runs) / len(jobs) - 1,
        "energy_kwh": _energy_kwh(_gpu_hours(runs), power_w),
    }


def result_of(
    jobs: Sequence[TraceJob],
    actual: Figures | None,
    replayed: Comparison,
    others: Comparison,
    *,
    power_w: Mapping[str, float],
) -> dict[str, Any]:
    """The result as JSON data; raises NotReplayed if the current policy could not be simulated."""
    (present,) = replayed.policies
    if (base := replayed.outcomes.get((present, 0))) is None:
        raise NotReplayed(f"The current policy could not be simulated: {replayed.failed[present, 0].reason}")
    simulated = _simulation(base, power_w)
    errors = {name: _change(simulated["figures"][name], actual[name]) for name in COMPARED} if actual else {}
    policies = [_policy(jobs, policy, others, base, power_w) for policy in others.policies]
    return {
        "jobs": len(jobs),
        "cluster": others.scenario.cluster,
        "actual": dict(actual) if actual else None,
        "present": {"policy": present, "errors": errors, **simulated},
        "policies": policies,
        "summary": summary(present, simulated["figures"], errors.get("avg_jct_h"), policies, uploaded=actual is None),
    }


class NotReplayed(Exception):
    """The simulation of the current policy failed."""


def _policy(
    jobs: Sequence[TraceJob], policy: str, others: Comparison, base: RunResult, power_w: Mapping[str, float]
) -> dict[str, Any]:
    if (outcome := others.outcomes.get((policy, 0))) is None:
        failed = others.failed[policy, 0].reason
        return {"policy": policy, "failed": failed, "figures": None, "curves": None, "teams": [], "sizes": []}
    teams = _changes(jobs, base, outcome, "team", lambda job: job.team or "")
    sizes = _changes(jobs, base, outcome, "size", _size)
    return {
        "policy": policy,
        "failed": "",
        **_simulation(outcome, power_w),
        "teams": sorted(teams, key=lambda one: (one["change"] is None, one["change"] or 0.0, one["team"])),
        "sizes": sorted(sizes, key=lambda one: SIZE_NAMES.index(one["size"])),
    }


def _simulation(outcome: RunResult, power_w: Mapping[str, float]) -> dict[str, Any]:
    """Figures and distributions of a simulated policy."""
    named, hours = flat(outcome.figures), outcome.figures["makespan_h"]
    there_h = dict(zip(outcome.gpu_types, (outcome.capacity * hours).tolist(), strict=True))
    busy_h = {kind: part * there_h[kind] for kind, part in outcome.figures["utilization_by_type"].items()}
    figures = {name: named[name] for name in FIGURES} | {"energy_kwh": _energy_kwh(busy_h, power_w)}
    return {"figures": figures, "curves": _curves(outcome)}


# -- energy ----------------------------------------------------------------------------------------------------


def _gpu_hours(runs: Iterable[Run]) -> Mapping[str, float]:
    hours: dict[str, float] = defaultdict(float)
    for run in runs:
        hours[run.gpu_type] += run.gpus * run.seconds / HOUR_S
    return hours


def _energy_kwh(gpu_hours: Mapping[str, float], power_w: Mapping[str, float]) -> float | None:
    """Energy of GPUs while jobs have them, by the power of their types; None if a power is not known."""
    if any(hours and not power_w.get(gpu_type) for gpu_type, hours in gpu_hours.items()):
        return None
    return sum(hours * power_w.get(gpu_type, 0.0) for gpu_type, hours in gpu_hours.items()) / 1000


# -- distributions ---------------------------------------------------------------------------------------------


def _curves(outcome: RunResult) -> dict[str, Any]:
    """Quantiles of completion time and rho, and the busy part of all GPUs over `hours` in equal intervals."""
    busy = outcome.busy.sum(axis=0) / max(int(outcome.capacity.sum()), 1)
    return {
        "jct_h": _quantiles(outcome.jobs.jct_s / HOUR_S),
        "rho": _quantiles(outcome.jobs.rho),
        "busy": _rounded(part.mean() for part in np.array_split(busy, INTERVALS)),
        "hours": outcome.whole_s / HOUR_S,
    }


def _quantiles(values: Floats) -> list[float]:
    known = values[~np.isnan(values)]
    return _rounded(np.quantile(known, np.linspace(0, 1, QUANTILES))) if known.size else []


def _rounded(values: Iterable[float]) -> list[float]:
    """To four digits: a chart shows no more."""
    return [float(f"{value:.4g}") for value in values]


# -- winners and losers ----------------------------------------------------------------------------------------

SIZE_NAMES = (*(name for _, name in SIZES), LARGEST)


def _size(job: TraceJob) -> str:
    fewest = min(job.gangs)
    return next((name for most, name in SIZES if fewest <= most), LARGEST)


def _changes(
    jobs: Sequence[TraceJob], base: RunResult, outcome: RunResult, kind: str, group_of: Callable[[TraceJob], str]
) -> list[dict[str, Any]]:
    """Mean JCT of each group of jobs and its change from the current policy's."""
    rows: dict[str, list[int]] = defaultdict(list)
    for row, job in enumerate(jobs):
        rows[group_of(job)].append(row)
    return [{kind: name, **_group(of_group, base.jobs.jct_s, outcome.jobs.jct_s)} for name, of_group in rows.items()]


def _group(rows: Sequence[int], before_s: Floats, after_s: Floats) -> dict[str, Any]:
    """Mean JCT and its change, over the jobs that are done in both."""
    both = [row for row in rows if not np.isnan(before_s[row] + after_s[row])]
    before, after = (float(jct_s[both].mean()) / HOUR_S if both else None for jct_s in (before_s, after_s))
    return {"jobs": len(both), "avg_jct_h": after, "change": _change(after, before)}


def _change(value: float | None, of: float | None) -> float | None:
    """Relative difference; None where it is not defined."""
    return value / of - 1 if value is not None and of else None


UPLOADED = "The trace was uploaded: what really happened, and so the error of the simulation, is not known."


# -- in words --------------------------------------------------------------------------------------------------------


def summary(
    present: str,
    simulated: Figures,
    error: float | None,
    policies: Sequence[Mapping[str, Any]],
    *,
    uploaded: bool = False,
) -> str:
    """One sentence about the policy with the least mean JCT, and one about the error of the simulation."""
    means = {one["policy"]: one["figures"]["avg_jct_h"] for one in policies if one["figures"]}
    known = {policy: mean for policy, mean in means.items() if mean is not None}
    if not known:
        return "No policy could be simulated."
    best = min(known, key=lambda policy: known[policy])
    change = _change(known[best], simulated["avg_jct_h"])
    known_error = UPLOADED if uploaded else _about(error)
    if change is not None and change > 0:
        least = f"The current policy, {present}, has the least mean job completion time as simulated"
        return f"{least}; next is {best}: {format_duration(3600 * known[best])}, {change:,.0%} more. {known_error}"
    than = "" if change is None else f", {_beside(change)} the current policy, {present}, as simulated"
    return f"{best} has the least mean job completion time: {format_duration(3600 * known[best])}{than}. {known_error}"


def _beside(change: float) -> str:
    words = f"{abs(change):.0%}"
    return "as with" if words == "0%" else f"{words} less than with"


def _about(error: float | None) -> str:
    if error is None:
        return "How far the simulation is from what really happened is not known."
    words = f"For the current policy the simulated mean job completion time is {_beside_truth(error)}"
    return f"{words}: do not rely on small differences." if abs(error) > FAR_OFF else f"{words}."


def _beside_truth(error: float) -> str:
    """The simulated mean beside the actual one; `error` is its relative difference."""
    size = f"{abs(error):.0%}"
    if size == "0%":
        return "the real one"
    return f"{size} {'longer' if error > 0 else 'shorter'} than the real one"
