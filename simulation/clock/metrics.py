"""Metrics of a finished simulation: completion times, utilisation, fairness, cost, decision times."""

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

import numpy as np
import numpy.typing as npt

from allocation.types import Floats
from simulation.clock.fairness import finish_time_ratios_of, jain_index_of
from simulation.clock.state import State

HOUR_S = 3600.0


def figures_of(
    state: State,
    gpu_types: Sequence[str],
    *,
    decided_s: Sequence[float],
    wall_s: float,
    prices: Sequence[float] | None,
) -> dict[str, Any]:
    """Metrics by name, times in hours; None where a metric is undefined.

    Makespan and utilisation cover the time from the first arrival to the last completion; jobs that fit nowhere on the
    cluster count as cannot_run and in no other metric.
    """
    jobs, done = state.jobs, ~np.isnan(state.finish_s)
    jct_h = (state.finish_s - jobs.arrival_s)[done] / HOUR_S
    return {
        "jobs": len(jobs.names),
        "completed": int(done.sum()),
        "cannot_run": int((~jobs.runnable).sum()),
        "avg_jct_h": _mean(jct_h),
        "median_jct_h": _percentile(jct_h, 50),
        "p99_jct_h": _percentile(jct_h, 99),
        "longest_first_wait_h": _longest_first_wait_h(state),
        "makespan_h": _makespan_s(state) / HOUR_S,
        **_utilization(state, gpu_types),
        "gpu_hours_per_job": _mean(state.attained_gpu_s[done] / HOUR_S),
        "restarts_per_job": _mean(state.restarts[done]),
        "restarts_p99": _percentile(state.restarts[done].astype(float), 99),
        "overhead": _overhead(state),
        "lost_gpu_hours": state.lost_gpu_s / HOUR_S,
        "queueing_h": _mean(jct_h - state.running_s[done] / HOUR_S),
        "rho": _rho(state),
        "team_share_error": state.teams.share_error(),
        "jain": _finite(jain_index_of(state)) if done.any() else None,
        "deadline_rate": _mean((state.finish_s <= jobs.deadline_s)[done & np.isfinite(jobs.deadline_s)]),
        "cost": None if prices is None else float(state.busy_gpu_s @ np.array(prices) / HOUR_S),
        "decision_ms": {f"p{p}": _percentile(1000 * np.array(decided_s), p) for p in (50, 95)},
        "wall_s": wall_s,
    }


def _longest_first_wait_h(state: State) -> float | None:
    """Longest time from submission to the first run."""
    waited_s = state.began_s - state.jobs.arrival_s
    return None if np.isnan(waited_s).all() else float(np.nanmax(waited_s)) / HOUR_S


def _overhead(state: State) -> float:
    """Part of the GPU time held in which jobs were restored or did work that was lost."""
    return (state.restored_gpu_s + state.lost_gpu_s) / max(float(state.busy_gpu_s.sum()), 1e-9)


def _makespan_s(state: State) -> float:
    if np.isnan(state.finish_s).all():
        return 0.0
    return float(np.nanmax(state.finish_s) - state.jobs.first_arrival_s)


def _utilization(state: State, gpu_types: Sequence[str]) -> Mapping[str, Any]:
    there_s = state.capacity * max(_makespan_s(state), 1e-9)
    of_type = (state.busy_gpu_s / there_s).tolist()
    return {
        "utilization": float(state.busy_gpu_s.sum() / there_s.sum()),
        "utilization_by_type": dict(zip(gpu_types, of_type, strict=True)),
    }


def _rho(state: State) -> Mapping[str, float | None]:
    rho = finish_time_ratios_of(state)
    return {
        "mean": _mean(rho),
        "p99": _percentile(rho, 99),
        "worst": _percentile(rho, 100),
        "share_above_1": _mean(rho > 1),
    }


def _finite(value: float) -> float | None:
    """A number that JSON can represent, or None: extreme weights can overflow."""
    return value if isfinite(value) else None


def _mean(values: npt.NDArray[Any]) -> float | None:
    return float(values.mean()) if values.size else None


def _percentile(values: Floats, percent: float) -> float | None:
    return float(np.percentile(values, percent)) if values.size else None
