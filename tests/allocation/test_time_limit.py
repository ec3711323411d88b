"""When the round's time is over, a policy answers with what is certified: it fits, and its bound and status say so."""

from math import inf

import numpy as np
import pytest

from allocation.decision import Status
from allocation.plan_round import plan_round
from allocation.policies.fifo import fifo
from allocation.policies.hadar import hadar
from allocation.policies.max_min_fairness import max_min_fairness
from allocation.policies.max_sum_throughput import max_sum_throughput
from allocation.policies.min_cost import min_cost
from allocation.policies.min_cost_slo import min_cost_slo
from allocation.policies.motley import motley
from allocation.problem import Problem
from allocation.quotas import Quotas
from tests.allocation.allocation_cases import build_inventory
from tests.allocation.set_clock import set_clock


def crowded(**columns):
    """Forty jobs that all differ, of 1 or 2 GPUs, on 8 GPUs of each of three types; the last ten run already."""
    rng = np.random.default_rng(1)
    usage = np.kron(np.eye(3, dtype=int), [1, 2])
    rate = rng.uniform(1, 2, (40, 3)).repeat(2, axis=1) * usage.sum(axis=0) ** rng.uniform(0.5, 1, (40, 1))
    defaults = {
        "remaining_steps": rng.uniform(1e3, 1e5, 40),
        "price_per_gpu_hour": [1, 2, 3],
        "held": np.where(np.arange(40) < 30, -1, np.arange(40) % 3 * 2),
    }
    return Problem.of(rate, usage, [8, 8, 8], **defaults | columns)


@pytest.fixture
def _no_time(monkeypatch):
    """Each look at the clock takes a second; and prices find next to nothing."""
    set_clock(monkeypatch, step_s=1)
    monkeypatch.setattr("allocation.solvers.lagrangian_dual.MOST_CUTS", 2)


def fits(problem, decision):
    if decision.assignment is not None:
        used = problem.usage[:, decision.assignment[decision.assignment >= 0]].sum(axis=1)
    else:
        used = problem.usage @ decision.shares.sum(axis=0)
        assert decision.shares.sum(axis=1).max() <= 1 + 1e-9
    return bool((used <= problem.capacity * (1 + 1e-9)).all())


@pytest.mark.usefixtures("_no_time")
@pytest.mark.parametrize("policy", [hadar, max_min_fairness, max_sum_throughput, min_cost])
def test_at_the_time_limit_the_best_certified_decision_counts(policy):
    best = policy(crowded())
    hurried = policy(crowded(solve_limit_s=0.5))
    assert (best.status, hurried.status) == (Status.RULE if policy is hadar else Status.OPTIMAL, Status.LIMIT)
    assert fits(crowded(), hurried)
    assert 0 <= hurried.objective <= hurried.bound
    assert hurried.bound >= best.objective * (1 - 1e-9)


def test_where_time_runs_out_between_levels_the_lowest_is_as_high_as_it_gets(monkeypatch):
    best = max_min_fairness(crowded())
    for cuts in range(1, 100):
        set_clock(monkeypatch, step_s=1)
        hurried = max_min_fairness(crowded(solve_limit_s=cuts + 0.5))
        assert fits(crowded(), hurried)
        if hurried.gap < 1e-6:
            break
    assert (hurried.status, hurried.objective) == (Status.LIMIT, pytest.approx(best.objective))
    assert worst_off(hurried) == pytest.approx(worst_off(best))


def worst_off(decision):
    problem = crowded()
    rate = (problem.rate * decision.shares).sum(axis=1)
    return (rate * problem.base_gpus / problem.base_rate).min()


@pytest.mark.usefixtures("_no_time")
def test_motley_then_takes_the_answer_by_prices():
    """Values without structure, gangs that do not divide: prices alone prove no pick to be best."""
    rate = np.random.default_rng(3).uniform(1, 20, (300, 6))
    usage, steps = [[3, 5, 7, 0, 0, 0], [0, 0, 0, 3, 5, 11]], np.full(300, 1e5)
    problem = Problem.of(rate, usage, [389, 397], remaining_steps=steps, solve_limit_s=0.5)
    hurried = motley(problem, gap=0)
    assert (hurried.status, fits(problem, hurried)) == (Status.LIMIT, True)
    assert 0 < hurried.gap < 0.6


@pytest.mark.usefixtures("_no_time")
def test_a_job_not_considered_in_time_keeps_what_it_holds():
    problem = crowded(solve_limit_s=0.5)
    assignment = hadar(problem).assignment
    assert (assignment[30:] == problem.held[30:]).all()
    assert 0 < (assignment[:30] >= 0).sum() <= 2


@pytest.mark.usefixtures("_no_time")
@pytest.mark.parametrize("deadline_s", [1e3, 1e4, 1e5])
def test_with_deadlines_too_the_policy_itself_decides_then(deadline_s):
    problem = crowded(solve_limit_s=0.5, deadline_s=np.full(40, deadline_s), held=np.full(40, -1))
    plan = plan_round(problem, build_inventory([[8], [8], [8]], 40), Quotas.none(40), min_cost_slo, round_s=60)
    assert (plan.decision.status, fits(problem, plan.decision)) == (Status.LIMIT, True)
    assert 0 < plan.decision.objective <= plan.decision.bound


@pytest.mark.usefixtures("_no_time")
def test_a_program_of_deadlines_stopped_early_keeps_the_rates_that_it_had_reached():
    problem = crowded(solve_limit_s=20, deadline_s=np.full(40, 1e4))
    hurried, best = min_cost_slo(problem), min_cost_slo(crowded(deadline_s=np.full(40, 1e4)))
    assert fits(problem, hurried)
    assert 0 < reached(problem, hurried) <= reached(problem, best) * (1 + 1e-6)


def reached(problem, decision):
    """Sum of the parts of the rates in time."""
    rate = (problem.rate * decision.shares).sum(axis=1)
    return np.minimum(rate * problem.deadline_s / problem.remaining_steps, 1).sum()


def test_a_second_decision_has_the_time_that_is_left(monkeypatch):
    """The first job is at its limit, so that the queue is asked again without it."""
    set_clock(monkeypatch, step_s=1)
    limits_seen = []

    def watched(problem):
        limits_seen.append(problem.solve_limit_s)
        return fifo(problem)

    problem = Problem.of([[0, 1], [1, 0]], [[1, 4]], [4], age_s=[9, 1], solve_limit_s=10)
    quotas = Quotas(np.array([[0], [-1]]), np.array([2]), np.array([0]))
    plan_round(problem, build_inventory([[4]], 2), quotas, watched, round_s=60)
    assert limits_seen == [10, 9]


def test_without_a_limit_a_decision_takes_as_long_as_it_takes(monkeypatch):
    set_clock(monkeypatch, step_s=1e9)
    assert crowded().solve_limit_s == inf
    assert hadar(crowded()).status == Status.RULE
