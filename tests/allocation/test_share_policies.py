"""Share policies: each reaches what its paper's formula promises, and what must hold whatever the jobs are called."""

import dataclasses

import numpy as np
import pytest
from hypothesis import assume, given

from allocation.policies import POLICIES
from allocation.policies.min_cost_slo import min_cost_slo
from allocation.problem import Problem
from tests.allocation import formulas
from tests.allocation.allocation_cases import clusters
from tests.hypothesis_examples import examples

many = examples(120)

BY_FORMULA = (
    "max_min_fairness",
    "max_min_fairness_agnostic",
    "makespan",
    "max_sum_throughput",
    "min_cost",
)
UNIT_FREE = (
    "max_min_fairness",
    "max_min_fairness_agnostic",
    "hierarchical_fairness",
    "finish_time_fairness",
    "makespan",
)
NEVER_WORSE = {"max_sum_throughput": 1, "hierarchical_fairness": 1, "makespan": -1, "sia": -1}
"""Whose optimum more capacity never lowers, and the sign of what is better."""


@many
@given(clusters())
@pytest.mark.parametrize("name", BY_FORMULA)
def test_the_objective_is_that_of_the_formula(name, cluster):
    expected = getattr(formulas, name)(cluster.problem)
    assert POLICIES[name](cluster.problem).objective == pytest.approx(expected, rel=1e-6)


@many
@given(clusters())
def test_no_lower_rho_can_be_had_by_the_formula(cluster):
    rho = POLICIES["finish_time_fairness"](cluster.problem).objective
    assert formulas.finish_times_reach(cluster.problem, rho * (1 + 1e-6)) >= 1
    assert formulas.finish_times_reach(cluster.problem, rho * (1 - 1e-6)) < 1


@many
@given(clusters())
def test_with_deadlines_that_can_be_met_the_objective_is_that_of_the_formula(cluster):
    expected = formulas.min_cost_slo(cluster.problem)
    assume(expected is not None)
    assert min_cost_slo(cluster.problem).objective == pytest.approx(expected, rel=1e-6)


@many
@given(clusters())
@pytest.mark.parametrize("name", BY_FORMULA)
def test_many_alike_are_worth_what_the_formula_says_too(name, cluster):
    """They are solved as one row that counts for all."""
    rows = np.arange(3 * len(cluster.problem.weight)) % len(cluster.problem.weight)
    crowd = cluster.problem.subset(rows)
    assert POLICIES[name](crowd).objective == pytest.approx(getattr(formulas, name)(crowd), rel=1e-6)


@many
@given(clusters())
@pytest.mark.parametrize("name", UNIT_FREE)
def test_jobs_that_are_alike_get_alike_shares(name, cluster):
    m = len(cluster.problem.weight)
    shares = POLICIES[name](cluster.problem.subset(np.arange(3 * m) % m)).shares
    assert np.array_equal(shares, np.tile(shares[:m], (3, 1)))


@many
@given(clusters())
def test_shares_are_worth_what_the_objective_says(cluster):
    problem = cluster.problem
    decision = POLICIES["max_min_fairness"](problem)
    rates = (problem.rate * decision.shares).sum(axis=1) * problem.base_gpus / (problem.weight * problem.base_rate)
    assert rates.min() == pytest.approx(decision.objective, rel=1e-5)


@many
@given(clusters())
@pytest.mark.parametrize("name", UNIT_FREE)
def test_the_unit_of_a_jobs_throughput_does_not_matter(name, cluster):
    problem = cluster.problem
    scale = np.logspace(-3, 3, len(problem.weight))
    scaled = dataclasses.replace(
        problem,
        rate=problem.rate * scale[:, None],
        base_rate=problem.base_rate * scale,
        remaining_steps=problem.remaining_steps * scale,
    )
    assert POLICIES[name](scaled).objective == pytest.approx(POLICIES[name](problem).objective, rel=1e-6)


@many
@given(clusters())
@pytest.mark.parametrize("name", NEVER_WORSE)
def test_more_capacity_never_makes_it_worse(name, cluster):
    problem, better = cluster.problem, NEVER_WORSE[name]
    larger = dataclasses.replace(problem, capacity=problem.capacity + np.arange(1, 1 + problem.capacity.size))
    parameters = {"gap": 0.0} if name == "sia" else {}
    before, after = (POLICIES[name](p, **parameters).objective for p in (problem, larger))
    assert better * after >= better * before - 1e-6 * abs(before)


@many
@given(clusters(max_jobs=5))
def test_no_job_can_rise_but_at_the_cost_of_one_that_is_no_better_off(cluster):
    """Lexicographic: with all jobs that are not above a job held at their levels, it can get no higher.

    Weights are within two orders here: what rounding leaves of a heavy job is much to a very light one.
    """
    problem = dataclasses.replace(cluster.problem, weight=cluster.problem.weight ** (1 / 3))
    a = problem.rate * (problem.base_gpus / (problem.weight * problem.base_rate))[:, None]
    reached = (a * POLICIES["max_min_fairness"](problem).shares).sum(axis=1)
    for i, level in enumerate(reached):
        held = np.where(reached <= level * (1 + 1e-6), reached * (1 - 1e-7), 0)
        assert formulas.highest_of(problem, a, i, least=held) <= level * (1 + 1e-3)


def test_deadlines_that_cannot_all_be_met_disappoint_few():
    """Two jobs need the one GPU whole, a third half of it: one of the first two is given up, not a third of each."""
    rate, usage = [[10], [10], [10]], [[1]]
    problem = Problem.of(rate, usage, [1], remaining_steps=[1000, 1000, 500], deadline_s=[100, 100, 100])
    shares = min_cost_slo(problem).shares[:, 0]
    assert shares[2] == pytest.approx(0.5)
    assert sum(shares) == pytest.approx(1)


def test_a_deadline_that_is_past_is_ignored():
    problem = Problem.of([[10], [20]], [[1]], [1], remaining_steps=[1000, 1000], deadline_s=[-5, np.inf])
    assert min_cost_slo(problem).shares[:, 0] == pytest.approx([0, 1])
