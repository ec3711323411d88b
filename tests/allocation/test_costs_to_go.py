"""Costs to go by a plan of all jobs, or of a sample whose prices all jobs answer."""

import numpy as np
import pytest

from allocation.plan.costs_to_go import find_costs_to_go
from allocation.plan.program import PlanProgram
from allocation.plan.solution import solve_plan
from allocation.time_budget import TimeBudget

USAGE = np.array([[1, 2, 4, 0, 0, 0], [0, 0, 0, 1, 2, 4]])
CAPACITY = np.array([24, 16])


def crowd(jobs: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Elastic jobs from a minute to a day that all differ."""
    rng = np.random.default_rng(seed)
    rate = rng.uniform(1, 5, (jobs, 2)).repeat(3, axis=1) * USAGE.sum(axis=0) ** rng.uniform(0.5, 1, (jobs, 1))
    return {
        "rate": rate,
        "steps": 10 ** rng.uniform(2, 5, jobs),
        "weight": rng.uniform(0.5, 2, jobs),
    }


def found(jobs: dict[str, np.ndarray], **options: object):
    columns = dict(jobs)
    return find_costs_to_go(columns.pop("rate"), USAGE, CAPACITY, **columns, **options)


def test_of_few_jobs_they_are_those_of_the_plan():
    jobs = crowd(40)
    costs = found(jobs)
    program = PlanProgram.of(jobs["rate"], USAGE, CAPACITY, costs.ends_s, steps=jobs["steps"], weight=jobs["weight"])
    assert costs.planned == 40
    assert costs.alpha == pytest.approx(solve_plan(program, gap=1e-4).cost_to_go, rel=0.05)


def test_a_sample_gives_nearly_the_costs_of_the_whole():
    jobs = crowd(1200)
    sampled, whole = found(jobs), found(jobs, most_planned=1200)
    assert (sampled.planned, whole.planned) == (200, 1200)
    assert 0.97 * whole.bound < sampled.bound < 1.02 * whole.bound
    error = np.abs(np.log(sampled.alpha / whole.alpha))
    assert np.median(error) < 0.05
    assert error.max() < 0.5


def test_the_bound_of_a_sample_is_below_what_the_whole_can_reach():
    for seed in range(20):
        jobs = crowd(60, seed)
        costs = found(jobs, most_planned=7)
        program = PlanProgram.of(
            jobs["rate"], USAGE, CAPACITY, costs.ends_s, steps=jobs["steps"], weight=jobs["weight"]
        )
        assert costs.bound <= solve_plan(program, gap=1e-3).value


def test_of_identical_jobs_one_stands_for_all():
    jobs = {"rate": np.tile([1.0, 1.8, 3.0, 2.0, 3.6, 6.0], (50, 1)), "steps": np.full(50, 1e4), "weight": np.ones(50)}
    assert found(jobs, most_planned=1).alpha == pytest.approx(found(jobs).alpha, rel=0.03)


@pytest.mark.parametrize("most_planned", [1000, 30])
def test_the_order_of_jobs_does_not_matter(most_planned):
    jobs, order = crowd(100), np.random.default_rng(1).permutation(100)
    shuffled = found({name: column[order] for name, column in jobs.items()}, most_planned=most_planned)
    assert shuffled.alpha == pytest.approx(found(jobs, most_planned=most_planned).alpha[order], rel=1e-9)


def test_a_job_alone_is_worth_the_time_that_its_steps_take_at_its_fastest():
    """Beside nobody its completion is earlier by a second for each second of work at 6 steps/s."""
    alone = found({"rate": np.array([[1.0, 1.8, 3.0, 2.0, 3.6, 6.0]]), "steps": np.array([6e4]), "weight": np.ones(1)})
    assert alone.alpha * 6 * 3600 == pytest.approx([1], rel=0.5)
    assert alone.prices.max() == pytest.approx(0, abs=0.05)


def test_lateness_makes_steps_of_long_jobs_worth_more_beside_those_of_short_ones():
    """Two jobs of an hour and a day share eight GPUs; late hours count more, those on average as much as before."""
    jobs = {
        "rate": np.tile(USAGE.sum(axis=0) ** 0.7, (2, 1)),
        "steps": np.array([3600.0, 86_400]),
        "weight": np.ones(2),
    }
    parts = [found(jobs, lateness=lateness).alpha for lateness in (0, 1, 3)]
    of_long = [alpha[1] / alpha[0] for alpha in parts]
    assert of_long[0] < of_long[1] < of_long[2]


def test_without_time_there_are_costs_all_the_same():
    assert (found(crowd(300), budget=TimeBudget.after(0)).alpha > 0).all()
