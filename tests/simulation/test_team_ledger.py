"""Figures about teams and restarts: entitled and delivered shares, backlog, overhead, first waits, minimum run time."""

from math import inf

import numpy as np
import pytest

from allocation.fairness import entitled_shares, later_backlog
from allocation.policies import POLICIES
from simulation.clock.metrics import figures_of
from simulation.clock.run import Simulation
from simulation.clock.state import State
from simulation.cluster import Cluster
from simulation.rules.service import ServiceRules
from simulation.traces.trace import Program, TraceJob
from simulation.workloads.jobs import Jobs
from simulation.workloads.rate_sources import RateTable

ROUND_S = 100.0
ONE_A_SECOND = RateTable({"w": {("v100", 1): 1.0}})


def run(trace, policy="fifo", *, gpus=1, restart_s=0.0, min_run_s=0.0):
    cluster = Cluster.parse(f"v100={gpus}")
    jobs = Jobs.of(trace, cluster, ONE_A_SECOND, restart_s=restart_s)
    rules = ServiceRules(cluster, POLICIES[policy], ROUND_S, min_run_s=min_run_s)
    return Simulation(State.before(jobs, cluster, [0]), rules).run()


def job(name, steps, *, arrival_s=0.0, **columns):
    return TraceJob(name=name, arrival_s=arrival_s, gangs=(1,), program=Program("w"), total_steps=steps, **columns)


def figures(state):
    return figures_of(state, ["v100"], decided_s=[0.0], wall_s=0, prices=None)


@pytest.mark.parametrize(
    ("weight", "demand", "share"),
    [
        ([1, 1], [2, 2], [0.5, 0.5]),
        ([1, 2], [2, 2], [1 / 3, 2 / 3]),
        ([8, 1, 1], [0.2, 1, 1], [0.2, 0.4, 0.4]),
        ([1, 1], [0.1, 0.3], [0.25, 0.75]),
        ([1, 5], [1, 0], [1, 0]),
        ([1, 1], [0, 0], [0, 0]),
    ],
)
def test_a_team_is_entitled_to_its_weights_share_of_what_it_can_use(weight, demand, share):
    found = entitled_shares(np.array(weight, dtype=float), np.array(demand, dtype=float))
    assert found.tolist() == pytest.approx(share)


def test_a_backlog_grows_by_what_is_missing_and_is_never_negative():
    assert later_backlog(np.zeros(2), np.array([0.25, -0.25]), 100.0).tolist() == [25, 0]


def test_the_team_that_waits_falls_behind_by_its_share():
    """Language is entitled to a third of 900 s, of which it receives nothing."""
    trace = [job("a", 900, team="vision", team_weight=2.0), job("b", 100, team="language")]
    state = run(trace)
    assert figures(state)["team_share_error"] == pytest.approx(1 / 3, rel=0.15)
    assert state.teams.delivered[0].tolist() == [1, 0]
    assert state.teams.entitled[0].tolist() == pytest.approx([2 / 3, 1 / 3])


def test_under_motley_the_team_behind_its_share_gets_its_turn():
    """Equal jobs of two teams; in a queue the second team's two would end last, at 4,400 s."""
    trace = [job(f"a{n}", 200, team="vision") for n in range(20)] + [job(f"b{n}", 200, team="language") for n in (0, 1)]
    state = run(trace, "motley")
    assert (state.finish_s[20:] <= 1500).all()


def test_jobs_without_a_team_have_no_share():
    assert figures(run([job("a", 100), job("b", 100)]))["team_share_error"] is None


def test_overhead_is_the_part_of_gpu_time_spent_on_restarts():
    """The short job preempts the long one, which is restored for 20 s."""
    state = run([job("long", 500), job("short", 50, arrival_s=100)], "srtf", restart_s=20)
    assert state.restarts.tolist() == [1, 0]
    assert figures(state)["overhead"] == pytest.approx(20 / (500 + 50 + 20))


def test_the_longest_wait_is_that_before_a_first_run():
    assert figures(run([job("a", 300), job("b", 100)]))["longest_first_wait_h"] == pytest.approx(300 / 3600)


def test_a_started_job_is_not_preempted_within_the_minimum_run_time():
    trace = [job("long", 1000), job("short", 50, arrival_s=100)]
    assert run(trace, "srtf").began_s.tolist() == [0, 100]
    assert run(trace, "srtf", min_run_s=300).began_s.tolist() == [0, 300]


def test_policies_are_told_the_declared_length():
    """By its declared length the longer job is the shorter one."""
    trace = [job("a", 200), job("b", 400, declared_length=0.25)]
    assert run(trace, "srtf").began_s.tolist() == [400, 0]


def test_a_job_of_undeclared_length_is_of_unknown_length():
    state = run([job("a", 200, declared_length=inf)], "motley")
    assert state.finish_s.tolist() == [200]
    assert np.isinf(state.problem(np.array([0])).remaining_steps).all()
