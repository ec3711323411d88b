"""`min_cost_slo` for many jobs with deadlines: by prices, as its plain program, also where not all can be met."""

import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocation.decision import Status
from allocation.policies.min_cost_slo import min_cost_slo, plain_program
from allocation.problem import Problem
from allocation.solvers.least_rates import LeastRateProblem, ShortfallProblem, SparseShares
from allocation.solvers.linear_program import maximize
from tests.allocation.allocation_cases import clusters
from tests.allocation.formulas import rates_in_time
from tests.hypothesis_examples import examples

SIZES = (1, 2, 4, 8, 16, 32)


def elastic(m, *, in_time, n=3, load=1.2, seed=0):
    """Jobs of 1 to 32 GPUs, each with a deadline at about `in_time` times what it needs on one GPU."""
    rng = np.random.default_rng(seed)
    usage = np.kron(SIZES, np.eye(n, dtype=int))
    one = 10 ** rng.uniform(0, 2, (m, 1)) * rng.uniform(0.5, 3, (m, n))
    rate = np.tile(one, len(SIZES)) * usage.sum(axis=0) ** rng.uniform(0.6, 0.95, (m, 1))
    steps = 10 ** rng.uniform(3, 6, m)
    deadline_s = steps / one.mean(axis=1) * in_time * 10 ** rng.uniform(-0.5, 0.5, m)
    price, capacity = np.resize([0.45, 1.46, 2.48], n), np.full(n, max(int(m / load / n), 1))
    columns = {"remaining_steps": steps, "deadline_s": deadline_s, "price_per_gpu_hour": price}
    return Problem.of(rate, usage, capacity, **columns)


def parts_reached(problem, shares):
    """Parts of the rates in time, of the jobs that have one."""
    wanted = rates_in_time(problem)
    bound = wanted > 0
    return np.minimum((problem.rate * shares).sum(axis=1)[bound] / wanted[bound], 1)


def used(problem, shares):
    return problem.usage @ shares.sum(axis=0)


@pytest.fixture
def without_highs(monkeypatch):
    """No linear program over all jobs."""

    def refuse(*_, **__):
        raise AssertionError("a program over all jobs was asked")

    for program in ("_by_highs", "_shortfall_by_highs"):
        monkeypatch.setattr(sys.modules["allocation.solvers.weighted_sum"], program, refuse)


@examples(60)
@given(st.integers(0, 2**32 - 1), st.integers(2, 60), st.sampled_from([0.1, 0.3, 1.0, 3.0]), st.integers(1, 4))
def test_as_many_deadlines_are_met_as_by_the_plain_program_and_at_the_same_cost(seed, m, in_time, n):
    problem = elastic(m, in_time=in_time, n=n, seed=seed)
    decision, plain = min_cost_slo(problem), plain_program(problem)
    assert decision.status == Status.OPTIMAL
    reached = parts_reached(problem, decision.shares).sum()
    assert reached == pytest.approx(parts_reached(problem, plain.shares).sum(), rel=1e-5)
    assert decision.objective == pytest.approx(plain.objective, rel=1e-5)


@examples(60)
@given(clusters(max_jobs=30))
def test_of_any_problem_the_sum_of_shortfalls_is_least_and_the_shares_fit(cluster):
    problem = cluster.problem
    decision, plain = min_cost_slo(problem), plain_program(problem)
    reached = parts_reached(problem, decision.shares).sum()
    assert reached >= parts_reached(problem, plain.shares).sum() - 1e-5
    assert (used(problem, decision.shares) <= problem.capacity * (1 + 1e-9)).all()
    assert (decision.shares.sum(axis=1) <= 1 + 1e-9).all()


@pytest.mark.usefixtures("without_highs")
def test_of_jobs_that_are_alike_some_meet_their_deadlines_rather_than_all_fall_short():
    """Each of 20 needs three quarters of a GPU, and there are 7 GPUs."""
    problem = Problem.of(np.full((20, 1), 4), [[1]], [7], remaining_steps=np.full(20, 3), deadline_s=np.full(20, 1))
    reached = np.sort(parts_reached(problem, min_cost_slo(problem).shares))
    assert reached == pytest.approx([0] * 10 + [1 / 3] + [1] * 9, abs=1e-6)


@pytest.mark.usefixtures("without_highs")
@pytest.mark.parametrize("in_time", [0.3, 1.0, 3.0])
def test_a_thousand_jobs_with_deadlines_are_decided_by_prices_alone(in_time):
    problem = elastic(1000, in_time=in_time)
    decision = min_cost_slo(problem)
    assert decision.status == Status.OPTIMAL
    assert decision.gap < 1e-7
    assert (used(problem, decision.shares) <= problem.capacity * (1 + 1e-9)).all()


def test_the_decision_does_not_depend_on_the_unit_of_steps():
    problem = elastic(100, in_time=0.5)
    other = replace(problem, rate=problem.rate * 1e6, remaining_steps=problem.remaining_steps * 1e6)
    assert min_cost_slo(other).objective == pytest.approx(1e6 * min_cost_slo(problem).objective, rel=1e-6)


def single(rng, kind):
    """One job of up to six configurations with a least rate, some of them infeasible, and prices."""
    K = int(rng.integers(1, 7))
    rate = 10 ** rng.uniform(-2, 2, (1, K)) * (rng.random((1, K)) < 0.8)
    rate[0, 0] = max(rate[0, 0], 1.0)
    usage, prices = rng.integers(0, 5, (2, K)), rng.choice([0, 0.1, 1], 2) * rng.random(2)
    if kind is ShortfallProblem:
        return ShortfallProblem.of(rate, usage, np.ones(2), np.ones(1, dtype=int)), prices
    least, value = rng.choice([0, 0.3, 1]) * rate.max(axis=1), np.where(rate > 0, rng.random((1, K)), 0)
    start = SparseShares.of(np.zeros_like(rate))
    return LeastRateProblem(value, rate, least, usage, np.ones(2), np.ones(1, dtype=int), start), prices


def best_reduced_value(job, prices):
    """By a linear program; a rate beyond the least one adds nothing to a shortfall."""
    reduced, row = job.value[0] - prices @ job.usage, job.rate[0]
    bound = [row, job.least] if isinstance(job, ShortfallProblem) else [-row, -job.least]
    return maximize(
        np.where(row > 0, reduced, -1e3), np.array([np.ones(row.size), bound[0]]), np.append(1.0, bound[1])
    ).value


@examples(200)
@given(st.integers(0, 2**32 - 1))
@pytest.mark.parametrize("kind", [LeastRateProblem, ShortfallProblem])
def test_the_response_of_a_job_is_its_best_at_the_prices(kind, seed):
    job, prices = single(np.random.default_rng(seed), kind)
    response = job.best_at(prices)
    value = job.weighted_sum(response) - prices @ job.used(response)
    assert value == pytest.approx(best_reduced_value(job, prices), rel=1e-6, abs=1e-6)
    assert response.times.sum() <= 1 + 1e-12
    if kind is LeastRateProblem:
        assert job.rate[0, response.columns] @ response.times >= job.least[0] * (1 - 1e-12)
