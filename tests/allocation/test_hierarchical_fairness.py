"""Fairness between teams: examples to check by hand, and Gavel's water filling, one program after the other."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from scipy.optimize import linprog

from allocation.policies import POLICIES
from allocation.policies.hierarchical_fairness import hierarchical_fairness
from allocation.problem import Problem
from tests.allocation.allocation_cases import clusters
from tests.hypothesis_examples import examples

many = examples(60)


def shares_of(problem, **parameters):
    return hierarchical_fairness(problem, **parameters).shares[:, 0]


def test_a_team_gets_its_weight_however_many_jobs_it_has():
    """Weights 2 and 1 on one GPU: four jobs of one team and one of the other, the weights split as the service does."""
    problem = Problem.of(np.ones((5, 1)), [[1]], [1], team=[0, 0, 0, 0, 1], weight=[0.5, 0.5, 0.5, 0.5, 1])
    assert shares_of(problem) == pytest.approx([1 / 6] * 4 + [1 / 3])


def test_what_a_job_cannot_use_goes_to_the_others_of_its_team():
    """Four GPUs for two teams of equal weight. A heavy job cannot run on more than its one GPU: its team's second
    GPU goes to the other two by their weights, 1 to 3, not to all."""
    problem = Problem.of(np.ones((7, 1)), [[1]], [4], team=[0, 0, 0, 1, 1, 1, 1], weight=[16, 1, 3, 5, 5, 5, 5])
    assert shares_of(problem) == pytest.approx([1, 0.25, 0.75, 0.5, 0.5, 0.5, 0.5])


def test_what_a_team_cannot_use_goes_to_the_other_teams():
    problem = Problem.of(np.ones((4, 1)), [[1]], [3], team=[7, -3, -3, -3], weight=[9, 1, 1, 1])
    assert shares_of(problem) == pytest.approx([1, 2 / 3, 2 / 3, 2 / 3])


def test_a_team_that_queues_serves_its_oldest_first():
    """Two GPUs for a team that queues in the order of age, and three of its jobs; then the other team takes half."""
    ages = {"age_s": [10, 30, 20]}
    assert shares_of(Problem.of(np.ones((3, 1)), [[1]], [2], **ages), within="fifo") == pytest.approx([0, 1, 1])
    problem = Problem.of(np.ones((4, 1)), [[1]], [3], team=[0, 0, 0, 1], weight=[1, 1, 1, 3], age_s=[10, 30, 20, 0])
    assert shares_of(problem, within="fifo") == pytest.approx([0, 1, 1, 1])


def test_a_job_that_capacity_stops_passes_its_turn_on():
    """The oldest can use the T4 alone, and shares it with the other team's first; the next of each uses the V100s."""
    rate = [[1, 0], [0, 1], [1, 0], [0, 1], [0, 1]]
    problem = Problem.of(rate, np.eye(2), [1, 1], team=[0, 0, 1, 1, 1], weight=[3, 3, 2, 2, 2], age_s=[9, 8, 7, 6, 5])
    assert hierarchical_fairness(problem, within="fifo").shares == pytest.approx(
        np.array([[0.5, 0], [0, 0.5], [0.5, 0], [0, 0.5], [0, 0]])
    )


def test_jobs_that_get_less_than_a_tenth_do_not_hold_up_others():
    """Where 39 jobs share a V100, each at a normalised rate of 2/39, the fortieth still has the T4 to itself."""
    rate = np.ones((40, 2)) * [[1, 0]]
    rate[7] = 1
    shares = hierarchical_fairness(Problem.of(rate, np.eye(2), [1, 1], team=np.arange(40) % 2)).shares
    assert shares[7] == pytest.approx([0, 1], abs=1e-6)
    assert np.delete(shares, 7, axis=0)[:, 0] == pytest.approx(1 / 39)


def test_jobs_of_one_team_get_what_max_min_fairness_gives_them():
    problem = Problem.of([[4, 1], [2, 1], [3, 3]], np.eye(2), [1, 1], weight=[1, 2, 5])
    expected = POLICIES["max_min_fairness"](problem).shares
    assert hierarchical_fairness(problem).shares == pytest.approx(expected, abs=1e-6)


def in_teams(problem, teams):
    """Weights within two orders: what rounding leaves of a heavy job is much to a very light one."""
    m = len(problem.weight)
    return replace(problem, weight=problem.weight ** (1 / 3), team=np.arange(m) * 7 % teams)


def best(problem, goal, reach, least):
    """The best value of goal @ X and what may be added, c, to the rates `least` at the speeds `reach`."""
    a = normalised(problem)
    m, K = a.shape
    rates = np.zeros((m, m * K))
    for i in range(m):
        rates[i, i * K : (i + 1) * K] = a[i]
    rows = np.block(
        [
            [-rates, reach[:, None]],
            [np.kron(np.eye(m), np.ones(K)), np.zeros((m, 1))],
            [np.kron(np.ones(m), problem.usage), np.zeros((len(problem.capacity), 1))],
        ]
    )
    most = np.concatenate([1e-8 * a.max(axis=1) - least, np.ones(m), problem.capacity])
    bounds = [(0, 1 if rate > 0 else 0) for rate in a.ravel()] + [(0, None)]
    options = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
    found = linprog(-goal, rows, most, bounds=bounds, options=options)
    assert found.status == 0
    return -found.fun


def normalised(problem):
    return problem.rate * (problem.base_gpus / problem.base_rate)[:, None]


def speeds(problem, stuck, within):
    """How fast each job rises while these can rise no more."""
    rising = np.zeros(len(stuck))
    for team in set(problem.team.tolist()):
        able = np.flatnonzero((problem.team == team) & ~stuck)
        first = able[np.argsort(-problem.age_s[able], kind="stable")][:1] if within == "fifo" else able
        rising[first] = problem.weight[first] / problem.weight[first].sum()
        rising[first] *= problem.weight[problem.team == team].sum()
    return rising


def water_filling(problem, within):
    """Gavel, section 4.3, word for word: the rates (m,) in the end."""
    a = normalised(problem)
    m, K = a.shape
    reached, stuck = np.zeros(m), np.zeros(m, dtype=bool)
    while not stuck.all():
        v = speeds(problem, stuck, within)
        reached = reached + v * best(problem, np.append(np.zeros(m * K), 1), v, reached)
        for i in np.flatnonzero(~stuck & (v > 0)):
            alone = np.append(np.zeros(m * K), 0)
            alone[i * K : (i + 1) * K] = a[i]
            highest_level = best(problem, alone, np.zeros(m), reached)
            stuck[i] = highest_level <= reached[i] + 1e-6 * a[i].max()
    return reached


@many
@given(clusters(max_jobs=6))
@pytest.mark.parametrize("within", ["fairness", "fifo"])
@pytest.mark.parametrize("teams", [1, 2, 3])
def test_every_job_ends_where_one_program_after_the_other_leaves_it(teams, within, cluster):
    problem = in_teams(cluster.problem, teams)
    a = normalised(problem)
    reached = (a * hierarchical_fairness(problem, within=within).shares).sum(axis=1)
    assert reached / a.max(axis=1) == pytest.approx(water_filling(problem, within) / a.max(axis=1), abs=1e-4)
