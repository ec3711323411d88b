"""Result of a lab run: what really happened, its simulation, and each policy with winners and losers. Pure."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import numpy as np

from allocation.types import Floats
from scheduler_app.lab.history import History
from simulation.clock.metrics import HOUR_S
from simulation.results.comparison import Comparison, RunResult
from simulation.results.summary import flat
from simulation.traces.trace import TraceJob

FIGURES = (
    "completed",
    "avg_jct_h",
    "p99_jct_h",
    "queueing_h",
    "makespan_h",
    "utilization",
    "restarts_per_job",
    "rho.mean",
    "rho.p99",
)
"""Of each simulated policy, as in the simulator's report."""
COMPARED = ("avg_jct_h", "queueing_h", "makespan_h", "utilization")
"""Those that are known of what really happened, too, and whose error is shown."""
FAR_OFF = 0.25
"""Error in mean JCT from which the summary warns."""

Figures = Mapping[str, float | None]


def actual_figures(jobs: Sequence[TraceJob], history: History, *, gpus: int) -> dict[str, float | None]:
    """What really happened to the jobs of the trace."""
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
    }


def result_of(jobs: Sequence[TraceJob], actual: Figures, replayed: Comparison, others: Comparison) -> dict[str, Any]:
    """The result as JSON data; raises NotReplayed if the present policy could not be simulated."""
    (present,) = replayed.policies
    if (base := replayed.outcomes.get((present, 0))) is None:
        raise NotReplayed(f"The present policy could not be simulated: {replayed.failed[present, 0].reason}")
    simulated = _figures(base)
    errors = {name: _change(simulated[name], actual[name]) for name in COMPARED}
    policies = [_policy(jobs, policy, others, base) for policy in others.policies]
    return {
        "jobs": len(jobs),
        "cluster": others.scenario.cluster,
        "actual": dict(actual),
        "present": {"policy": present, "figures": simulated, "errors": errors},
        "policies": policies,
        "summary": summary(present, simulated, errors["avg_jct_h"], policies),
    }


class NotReplayed(Exception):
    """The simulation of the present policy failed."""


def _policy(jobs: Sequence[TraceJob], policy: str, others: Comparison, base: RunResult) -> dict[str, Any]:
    if (outcome := others.outcomes.get((policy, 0))) is None:
        return {"policy": policy, "failed": others.failed[policy, 0].reason, "figures": None, "teams": []}
    return {"policy": policy, "failed": "", "figures": _figures(outcome), "teams": _teams(jobs, base, outcome)}


def _figures(outcome: RunResult) -> dict[str, float | None]:
    named = flat(outcome.figures)
    return {name: named[name] for name in FIGURES}


def _teams(jobs: Sequence[TraceJob], base: RunResult, outcome: RunResult) -> list[dict[str, Any]]:
    """Mean JCT of each team and its change from the present policy's, the winners first."""
    rows: dict[str, list[int]] = defaultdict(list)
    for row, job in enumerate(jobs):
        rows[job.team or ""].append(row)
    found = [_team(team, of_team, base.jobs.jct_s, outcome.jobs.jct_s) for team, of_team in rows.items()]
    return sorted(found, key=lambda team: (team["change"] is None, team["change"] or 0.0, team["team"]))


def _team(team: str, rows: Sequence[int], before_s: Floats, after_s: Floats) -> dict[str, Any]:
    """Over the jobs that are done in both."""
    both = [row for row in rows if not np.isnan(before_s[row] + after_s[row])]
    means = [float(jct_s[both].mean()) / HOUR_S if both else None for jct_s in (before_s, after_s)]
    return {"team": team, "jobs": len(both), "avg_jct_h": means[1], "change": _change(means[1], means[0])}


def _change(value: float | None, of: float | None) -> float | None:
    """Relative difference; None where it is not defined."""
    return value / of - 1 if value is not None and of else None


# -- in words --------------------------------------------------------------------------------------------------------


def summary(present: str, simulated: Figures, error: float | None, policies: Sequence[Mapping[str, Any]]) -> str:
    """One sentence about the policy with the least mean JCT, and one about the error of the simulation."""
    means = {one["policy"]: one["figures"]["avg_jct_h"] for one in policies if one["figures"]}
    known = {policy: mean for policy, mean in means.items() if mean is not None}
    if not known:
        return "No policy could be simulated."
    best = min(known, key=lambda policy: known[policy])
    change = _change(known[best], simulated["avg_jct_h"])
    than = "" if change is None else f", {_beside(change)} the present policy, {present}, as simulated"
    return f"{best} has the least mean job completion time: {known[best]:.3g} h{than}. {_about(error)}"


def _beside(change: float) -> str:
    words = f"{abs(change):.0%}"
    return "as with" if words == "0%" else f"{words} {'less' if change < 0 else 'more'} than with"


def _about(error: float | None) -> str:
    if error is None:
        return "How far the simulation is from what really happened is not known."
    words = f"For the present policy the simulation is {error:+.0%} off what really happened"
    return f"{words}: do not rely on small differences." if abs(error) > FAR_OFF else f"{words}."
