"""Policies: an example by hand, an oracle, and what must hold for every problem."""

import dataclasses

import cvxpy as cp
import numpy as np
import pytest
from allocation_cases import clusters
from hypothesis import given, settings

from allocation.policies import POLICIES
from allocation.policies.fifo import fifo
from allocation.policies.max_min_fairness import max_min_fairness
from allocation.problem import Problem
from allocation.reasons import ReasonCode

few = settings(max_examples=60, deadline=None, derandomize=True)


def max_min_by_cvxpy(problem):
    """Section 4.1 of the paper, word for word."""
    T, u, c = problem.rate, problem.usage, problem.capacity
    X = cp.Variable(T.shape, nonneg=True)
    unit = c.sum() / problem.weight.sum()
    a = T * (problem.base_gpus / (problem.weight * unit * problem.base_rate))[:, None]
    worst = cp.min(cp.sum(cp.multiply(a, X), axis=1))
    task = cp.Problem(cp.Maximize(worst), [cp.sum(X, axis=1) <= 1, u @ cp.sum(X, axis=0) <= c])
    return unit * task.solve(solver=cp.CLARABEL, tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10)


def test_two_jobs_each_get_the_type_that_suits_them():
    """On one V100 and one K80, of speeds 4:1 and 2:1: the first job is on the V100 4/5 of the time.

    Rates relative to the average GPU: 1.6 and 0.4, 4/3 and 2/3. With x the first job's time on the V100, and the rest
    of it on the K80: 1.6 x + 0.4 (1 - x) = 4/3 (1 - x) + 2/3 x, so x = 14/28 = 1/2 and z = 1.
    """
    decision = max_min_fairness(Problem.of([[4, 1], [2, 1]], np.eye(2), [1, 1]))
    assert decision.objective == pytest.approx(1)
    assert decision.shares == pytest.approx(np.full((2, 2), 0.5))


def test_a_price_is_what_one_more_gpu_would_add_to_the_worst_off_job():
    """Three equal jobs on two GPUs get 2/3 each; on three GPUs, all of their time."""
    decision = max_min_fairness(Problem.of([[5], [5], [5]], [[1]], [2]))
    assert (decision.objective, decision.prices) == (pytest.approx(2 / 3), pytest.approx([1 / 3]))


def test_fifo_gives_the_oldest_job_the_roomiest_type_and_stops_at_the_first_that_fits_nowhere():
    usage = [[1, 4, 0, 0], [0, 0, 1, 4]]
    rate = [[0, 1, 0, 1], [9, 0, 1, 0], [0, 1, 0, 1], [1, 0, 1, 0]]
    decision = fifo(Problem.of(rate, usage, [4, 5], age_s=[30, 40, 20, 10]))
    assert decision.picks.tolist() == [1, 2, 3, -1]
    decision = fifo(Problem.of(rate, usage, [4, 4], age_s=[30, 40, 20, 10]))
    assert decision.picks.tolist() == [3, 0, -1, -1]


def test_fifo_says_which_job_stands_ahead():
    decision = fifo(Problem.of([[1], [1], [1]], [[1]], [1], age_s=[1, 3, 2]))
    assert [(reason.code, reason.rival) for reason in decision.reasons[0]] == [(ReasonCode.OUTBID, 2)]


def test_fifo_leaves_a_running_job_where_it_is():
    decision = fifo(Problem.of([[1, 1], [1, 1]], np.eye(2), [1, 1], age_s=[9, 1], held=[-1, 1]))
    assert decision.picks.tolist() == [0, 1]


@few
@given(clusters())
def test_max_min_fairness_reaches_the_value_of_the_formula(cluster):
    expected = max_min_by_cvxpy(cluster.problem)
    assert max_min_fairness(cluster.problem).objective == pytest.approx(expected, rel=1e-6)


@few
@given(clusters())
def test_max_min_fairness_of_many_alike_reaches_the_value_of_the_formula_too(cluster):
    """They are solved as one row that counts for all."""
    many = cluster.problem.subset(np.arange(3 * len(cluster.problem.weight)) % len(cluster.problem.weight))
    assert max_min_fairness(many).objective == pytest.approx(max_min_by_cvxpy(many), rel=1e-6)


@few
@given(clusters())
def test_jobs_that_are_alike_get_alike_shares(cluster):
    m = len(cluster.problem.weight)
    shares = max_min_fairness(cluster.problem.subset(np.arange(3 * m) % m)).shares
    assert np.array_equal(shares, np.tile(shares[:m], (3, 1)))


@few
@given(clusters())
def test_shares_are_worth_what_the_objective_says(cluster):
    problem = cluster.problem
    decision = max_min_fairness(problem)
    rates = (problem.rate * decision.shares).sum(axis=1) * problem.base_gpus / (problem.weight * problem.base_rate)
    assert rates.min() == pytest.approx(decision.objective, rel=1e-5)


@few
@given(clusters())
@pytest.mark.parametrize("name", POLICIES)
def test_a_decision_fits_the_cluster(name, cluster):
    problem = cluster.problem
    decision = POLICIES[name](problem)
    shares = np.eye(len(problem.nodes) + 1)[decision.picks, :-1] if decision.shares is None else decision.shares
    assert (shares[problem.rate == 0] == 0).all()
    assert (shares.sum(axis=1) <= 1 + 1e-6).all()
    assert (problem.usage @ shares.sum(axis=0) <= problem.capacity * (1 + 1e-6)).all()


@few
@given(clusters())
@pytest.mark.parametrize("name", POLICIES)
def test_the_unit_of_throughput_does_not_matter(name, cluster):
    problem = cluster.problem
    scale = np.logspace(-3, 3, len(problem.weight))
    scaled = dataclasses.replace(problem, rate=problem.rate * scale[:, None], base_rate=problem.base_rate * scale)
    assert POLICIES[name](scaled).objective == pytest.approx(POLICIES[name](problem).objective, rel=1e-6)


@few
@given(clusters())
@pytest.mark.parametrize("name", POLICIES)
def test_the_order_of_jobs_does_not_matter(name, cluster):
    backwards = cluster.problem.subset(np.arange(len(cluster.problem.weight))[::-1])
    expected = POLICIES[name](cluster.problem).objective
    assert POLICIES[name](backwards).objective == pytest.approx(expected, rel=1e-6)


@few
@given(clusters())
@pytest.mark.parametrize("name", POLICIES)
def test_the_same_problem_gets_the_same_answer(name, cluster):
    once, again = POLICIES[name](cluster.problem), POLICIES[name](cluster.problem)
    assert np.array_equal(once.shares, again.shares) if once.picks is None else np.array_equal(once.picks, again.picks)
