"""Hadar: examples to check by hand, the recursion that it is, and what prices and payoffs keep to."""

from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocation.plan_round import plan_round
from allocation.policies.hadar import hadar
from allocation.policies.parameters import parameters_of
from allocation.problem import Problem
from allocation.quotas import Quotas
from allocation.rounds.pending_reasons import ReasonCode, explain
from allocation.solvers.integer_assignment import solve_assignment
from allocation.solvers.primal_dual import ExponentialPrices, admit
from tests.allocation.allocation_cases import build_inventory, clusters
from tests.hypothesis_examples import examples

many = examples(40)

OBJECTIVES = parameters_of(hadar)["objective"].names
EVERYTHING = 4096
"""A beam from which nothing of eight jobs falls."""


def one_gpu(**columns):
    """Two jobs, of an hour and of ten, of which the second began long ago."""
    known = {"remaining_steps": [3600, 36000], "total_steps": [3600, 360000], "age_s": [0, 324000]}
    return Problem.of([[1], [1]], [[1]], [1], **known | columns)


# -- by hand -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("objective", "first", "columns"),
    [
        ("jct", 0, {}),
        ("makespan", 1, {"age_s": [3600, 3600]}),
        ("slowdown", 0, {"age_s": [0, 500_000]}),
        ("ftf", 1, {"isolated_s": [0, 900_000]}),
        ("deadline", 1, {"deadline_s": [3599, 36_000]}),
        ("deadline", 0, {"deadline_s": [3600, 35_999]}),
    ],
)
def test_the_objective_says_which_job_gets_the_only_gpu(objective, first, columns):
    assignment = hadar(one_gpu(**columns), objective=objective).assignment
    assert assignment.tolist() == [0 if i == first else -1 for i in range(2)]


def test_at_the_least_cost_a_job_takes_the_cheaper_gpus_though_they_are_slower():
    problem = Problem.of([[3, 2]], np.eye(2), [1, 1], price_per_gpu_hour=[4, 1], remaining_steps=[1e4])
    assert hadar(problem, objective="cost").assignment.tolist() == [1]
    assert hadar(problem, objective="jct").assignment.tolist() == [0]


def test_a_weight_counts_as_so_many_jobs():
    assert hadar(one_gpu(weight=[1, 200])).assignment.tolist() == [-1, 0]


def test_a_restart_that_costs_more_than_it_brings_is_not_made():
    """On the faster GPU it would be done in 500 s, here in 600: it moves if that takes less than 100 s."""
    rate, still = [[10, 12]], {"remaining_steps": [6000], "held": [0]}
    assert hadar(Problem.of(rate, np.eye(2), [1, 1], restart_s=[99], **still)).assignment.tolist() == [1]
    assert hadar(Problem.of(rate, np.eye(2), [1, 1], restart_s=[101], **still)).assignment.tolist() == [0]


def test_a_gang_may_be_of_two_types():
    """One V100 and one K80 are left, too few of either type for the gang: together they hold it."""
    usage = [[2, 0, 1], [0, 2, 1]]
    problem = Problem.of([[8, 2, 2], [0, 4, 0]], usage, [1, 3], remaining_steps=[100, 100])
    assert hadar(problem).assignment.tolist() == [2, 1]


def test_a_waiting_job_is_told_its_gain_and_the_price_of_the_gpus():
    problem, inventory, quotas = one_gpu(), build_inventory([[1]], 2), Quotas.none(2)
    plan = plan_round(problem, inventory, quotas, hadar, round_s=60)
    left = explain(problem, plan.decision, inventory, quotas, assignment=plan.assignment, owner=plan.owner, round_s=60)
    reason = next(reason for reason in left[1] if reason.code == ReasonCode.OUTBID)
    assert reason.numbers["value"] == pytest.approx(1 / 360_000)
    assert reason.numbers["price"] == pytest.approx(1 / 3600)


# -- the recursion -----------------------------------------------------------------------------------------------


def recursion(value, usage, tariff, turn):
    """The best sum of payoffs, as it is written: skip or take, and the better of both."""

    @cache
    def best(at, left):
        if at == len(turn):
            return 0.0
        prices, i = tariff.at(np.array(left)), turn[at]
        fits = [k for k in np.flatnonzero(value[i]) if (usage[:, k] <= left).all()]
        payoffs = [value[i, k] - prices @ usage[:, k] for k in fits]
        skip = best(at + 1, left)
        if max(payoffs, default=0) <= 0:
            return skip
        k = fits[int(np.argmax(payoffs))]
        return max(skip, max(payoffs) + best(at + 1, tuple(np.array(left) - usage[:, k])))

    return best(0, tuple(tariff.capacity.tolist()))


def paid(value, usage, tariff, turn, assignment):
    """The payoffs of these picks together, each at the prices of its turn; none may be negative."""
    total, left = 0.0, tariff.capacity
    for i in turn:
        if assignment[i] >= 0:
            payoff = value[i, assignment[i]] - tariff.at(left) @ usage[:, assignment[i]]
            assert payoff > 0
            total, left = total + payoff, left - usage[:, assignment[i]]
    assert (left >= 0).all()
    return total


@many
@given(clusters(), st.integers(0, 2**32 - 1))
def test_with_a_beam_that_drops_nothing_it_is_the_recursion(cluster, seed):
    rng, problem = np.random.default_rng(seed), cluster.problem
    c, u = problem.capacity, problem.usage
    value = np.where(problem.rate > 0, 10 ** rng.uniform(-1, 1, problem.rate.shape) * problem.gpus, 0)
    tariff = ExponentialPrices(np.full(len(c), 0.05), rng.uniform(1, 10, len(c)), c)
    turn = rng.permutation(len(value))
    assignment = admit(value, u, c, tariff, turn, beam=EVERYTHING)
    best = recursion(value, u, tariff, turn)
    assert paid(value, u, tariff, turn, assignment) == pytest.approx(best)
    few = admit(value, u, c, tariff, turn, beam=2)
    assert paid(value, u, tariff, turn, few) <= best * (1 + 1e-9)


# -- what prices and payoffs keep to -----------------------------------------------------------------------------


def left_by(problem, assignment):
    return problem.capacity - problem.usage[:, assignment[assignment >= 0]].sum(axis=1)


@many
@given(clusters(busy=True))
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_no_job_waits_beside_gpus_that_it_could_use(objective, cluster):
    problem = cluster.problem
    decision = hadar(problem, objective=objective)
    left = left_by(problem, decision.assignment)
    assert (left >= 0).all()
    waiting = (decision.assignment < 0)[:, None] & (problem.rate > 0)
    assert not (waiting & (problem.usage <= left[:, None]).all(axis=0)).any()


@many
@given(clusters(busy=True))
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_full_type_costs_as_much_as_any_job_would_gain(objective, cluster):
    problem = cluster.problem
    decision = hadar(problem, objective=objective)
    full = left_by(problem, decision.assignment) == 0
    within = (problem.usage[~full] == 0).all(axis=0)
    payoff = decision.value - decision.prices @ problem.usage
    assert (payoff[:, within] <= 1e-9 * decision.value[:, within]).all()


@many
@given(clusters())
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_an_idle_type_costs_less_than_it_is_worth_to_any_job(objective, cluster):
    problem = cluster.problem
    decision = hadar(problem, objective=objective)
    used = left_by(problem, decision.assignment) < problem.capacity
    idle = (problem.rate > 0) & (problem.usage[used] == 0).all(axis=0)
    assert (decision.value > decision.prices @ problem.usage)[idle].all()


@many
@given(clusters())
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_no_picks_are_worth_more_than_the_bound(objective, cluster):
    problem = cluster.problem
    decision = hadar(problem, objective=objective)
    best = solve_assignment(decision.value, problem.usage, problem.capacity, gap=0).value
    assert decision.objective <= best * (1 + 1e-5)
    assert best <= decision.bound * (1 + 1e-9)


@many
@given(st.integers(0, 2**32 - 1))
def test_prices_rise_by_equal_factors_from_the_least_to_the_most(seed):
    rng = np.random.default_rng(seed)
    least, capacity = rng.uniform(0.1, 1, 3), rng.integers(1, 50, 3)
    tariff = ExponentialPrices(least, least * rng.uniform(1.0001, 1000, 3), capacity)
    assert tariff.at(capacity) == pytest.approx(tariff.least)
    assert tariff.at(0 * capacity) == pytest.approx(tariff.most)
    given = rng.integers(0, capacity)
    step = tariff.at(capacity - given - 1) / tariff.at(capacity - given)
    assert step**capacity == pytest.approx(tariff.most / tariff.least)
