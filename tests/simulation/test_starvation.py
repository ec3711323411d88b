"""No job waits forever: every job of a finite trace ends, and one of the least weight has its turn within a bound."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocation.policies import POLICIES, REGISTRY
from allocation.problem import LEASE
from allocation.rounds.mechanism import LEAST_PART
from simulation.clock.run import Simulation
from simulation.cluster import Cluster
from simulation.rules.service import ServiceRules
from simulation.scenario.setting import begin
from simulation.traces.trace import Trace, TraceJob
from simulation.workloads.rate_sources import BySpeed
from tests.hypothesis_examples import examples
from tests.policy_cases import policy_cases

CLUSTER, GPUS = Cluster.parse("v100=1x4,t4=1x4"), 8
ROUND_S, MIN_RUN_S, RESTART_S = 300.0, 300.0, 30.0
TURN_S = LEASE * RESTART_S
SHARING = ("max_min_fairness", "max_min_fairness_agnostic", "hierarchical_fairness", "finish_time_fairness")
MOST_OF_OTHERS = 1.2 * (ROUND_S / 3600) ** -0.2 * 3
"""Value of full speed of a short job of weight 1 that has not run: the most that holds a queue up under `motley`."""


def run(policy, jobs):
    rules = ServiceRules(CLUSTER, POLICIES[policy], ROUND_S, REGISTRY[policy].timeless, min_run_s=MIN_RUN_S)
    return Simulation(begin(Trace.of(jobs), CLUSTER, BySpeed(), rules, None, restart_s=RESTART_S), rules).run()


@st.composite
def traces(draw):
    """Up to 14 jobs of three teams, rigid and elastic, that come within two hours."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    sizes, lengths = [(1,), (2,), (4,), (1, 2, 4)], [1.0, 0.5, 2.0, np.inf]
    return [
        TraceJob(
            name=f"j{n}",
            arrival_s=float(rng.uniform(0, 7200)),
            gangs=sizes[rng.integers(4)],
            duration_s=float(10 ** rng.uniform(1, 4.3)),
            weight=float(10 ** rng.uniform(-3, 0)),
            team=f"t{n % 3}",
            team_weight=[1.0, 1e-3, 1e3][n % 3],
            declared_length=lengths[rng.integers(4)],
            deadline_s=8000.0 if rng.random() < 0.3 else None,
        )
        for n in range(int(rng.integers(1, 15)))
    ]


@examples(6)
@given(traces())
@pytest.mark.parametrize("policy", policy_cases())
def test_every_job_of_a_finite_trace_ends(policy, jobs):
    assert not np.isnan(run(policy, jobs).finish_s).any()


def crowd(seed, *, gang, weight):
    """A job of the least weight that comes when others wait; for six hours as many more come as the cluster can do."""
    rng = np.random.default_rng(seed)
    least = TraceJob(name="least", arrival_s=600.0, gangs=(gang,), duration_s=1800.0, team="small", team_weight=weight)
    came_s = np.append(np.zeros(12), np.sort(rng.uniform(0, 6 * 3600, 125))).tolist()
    others = [
        TraceJob(name=f"o{n}", arrival_s=at, gangs=(1,), duration_s=float(rng.uniform(450, 1350)), team="big")
        for n, at in enumerate(came_s)
    ]
    return [*others, least]


def waited_s(state):
    """Seconds that the job waited, the most jobs that were there meanwhile, and those as old when it began."""
    row, jobs = list(state.jobs.names).index("least"), state.jobs
    times = jobs.arrival_s[(jobs.arrival_s >= jobs.arrival_s[row]) & (jobs.arrival_s <= state.began_s[row])]
    there = [int(((jobs.arrival_s <= at) & (state.finish_s > at)).sum()) for at in times]
    as_old = (jobs.arrival_s <= jobs.arrival_s[row]) & (state.finish_s > state.began_s[row] - ROUND_S)
    return state.began_s[row] - jobs.arrival_s[row], max(there), int(as_old.sum())


CASES = given(st.integers(0, 2**32 - 1), st.sampled_from([1, 2, 4]), st.sampled_from([1e-6, 1e-3]))


@examples(2)
@CASES
@pytest.mark.parametrize("policy", policy_cases(SHARING))
def test_under_a_policy_of_shares_the_least_weight_has_its_turn_within_the_bound(policy, seed, gang, weight):
    """A turn over a tenth of an equal share among the jobs as old, and the turns of all that may be owed more."""
    wait_s, jobs, as_old = waited_s(run(policy, crowd(seed, gang=gang, weight=weight)))
    assert wait_s <= TURN_S * (max(1, as_old * gang / GPUS) / LEAST_PART + jobs * gang / GPUS)


@examples(6)
@CASES
def test_under_motley_the_least_weight_has_its_turn_within_the_bound(seed, gang, weight):
    """Age 4 I, and then I, or an hour, for each time that its queue must grow by the others' highest value over 2 d."""
    wait_s, jobs, as_old = waited_s(run("motley", crowd(seed, gang=gang, weight=weight)))
    alone_s = 1800.0 * 2  # on the average GPU, half as fast as the V100 or faster
    whole_s = alone_s * max(1, min(jobs, max(as_old, 1)) * gang / GPUS)
    assert wait_s <= 4 * whole_s + max(whole_s, 3600) * MOST_OF_OTHERS / 2 + MIN_RUN_S
