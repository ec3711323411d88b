"""The simulator estimates lengths that jobs do not declare, if it is asked to, from jobs that finished."""

from math import inf

import numpy as np
import pytest

from allocation.policies import POLICIES
from estimation.durations import DurationHistory
from simulation.clock.run import Simulation
from simulation.clock.state import State
from simulation.cluster import Cluster
from simulation.rules.service import ServiceRules
from simulation.scenario.setting import begin
from simulation.traces.trace import Program, Trace, TraceJob
from simulation.workloads.rate_sources import BySpeed

CLUSTER = Cluster.parse("v100=1x1")


def job(name: str, arrival_s: float, duration_s: float, *, workload: str) -> TraceJob:
    facts = {"program": Program(workload), "declared_length": inf, "team": "a"}
    return TraceJob(name=name, arrival_s=arrival_s, gangs=(1,), duration_s=duration_s, **facts)


def started(*, estimate: bool) -> tuple[State, Simulation]:
    """One GPU; two jobs tell the durations of their workloads, then a long one and a short one come."""
    trace = [
        job("tells long", 0, 1000, workload="train"),
        job("tells short", 1, 10, workload="eval"),
        job("blocks", 2, 500, workload="other"),
        job("long", 1100, 1000, workload="train"),
        job("short", 1200, 10, workload="eval"),
    ]
    rounds = ServiceRules(CLUSTER, POLICIES["qssf"], 1e6, event_delay_s=0.0)
    state = begin(Trace.of(trace), CLUSTER, BySpeed(), rounds, None)
    state.durations = DurationHistory() if estimate else None
    return state, Simulation(state, rounds)


@pytest.mark.parametrize(("estimate", "first"), [(True, "short"), (False, "long")])
def test_the_job_of_the_shorter_workload_starts_first_if_lengths_are_estimated(estimate: bool, first: str) -> None:
    state, simulation = started(estimate=estimate)
    simulation.run()
    began = dict(zip(state.jobs.names, state.began_s.tolist(), strict=True))
    assert min(("long", "short"), key=began.__getitem__) == first


def test_the_steps_left_are_those_of_the_estimate_and_never_none() -> None:
    state, _ = started(estimate=True)
    rows = np.array([0])
    assert np.isinf(state.problem(rows).remaining_steps).all()
    state.note_finished(np.array([0]))
    before = state.problem(rows).remaining_steps[0] / state.jobs.base_rate[0]
    assert before == pytest.approx(1000)
    state.left[0] = 0.4 * state.jobs.steps[0]
    problem = state.problem(rows)
    assert problem.remaining_steps[0] > 0
    assert problem.total_steps[0] == pytest.approx(0.6 * state.jobs.steps[0] + problem.remaining_steps[0])
