"""Weights and rates over many orders of magnitude: what the doors let in is solved, the rest refused by name."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocation.columns import InvalidProblem
from allocation.configurations import Configurations
from allocation.policies import POLICIES
from allocation.problem import Problem, runnable
from tests.hypothesis_examples import examples

DECADES = 12
"""Over which weights and rates are spread."""


@st.composite
def extreme_problems(draw):
    """Up to 12 jobs on up to three types; weights, rates of jobs and types, and lengths differ by 12 decades."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n, m = int(rng.integers(1, 4)), int(rng.integers(1, 13))
    node_gpus = [rng.choice([1, 2, 4, 8], rng.integers(1, 4)).tolist() for _ in range(n)]
    offered = Configurations.of(node_gpus, [1, 2, 4, 8])
    capacity = np.array([sum(sizes) for sizes in node_gpus])
    types = 10 ** rng.uniform(-DECADES / 2, DECADES / 2, (m, n if draw(st.booleans()) else 1))
    rate = (types * np.ones((m, n)))[:, offered.gpu_type] * offered.gpus**0.8
    rate *= rng.random(rate.shape) < draw(st.sampled_from([0.5, 1]))
    rate = np.append(rate[runnable(rate, offered.usage, capacity)], offered.gpus[None] * 1.0, axis=0)
    return Problem.of(rate, offered.usage, capacity, nodes=offered.nodes, **columns(rng, rate, n))


def columns(rng, rate, n):
    m = len(rate)
    total_steps = 10 ** rng.uniform(0, DECADES, m) * (rate.max(axis=1) if rng.random() < 0.5 else 1)
    return {
        "weight": 10 ** rng.uniform(-DECADES, DECADES, m),
        "job_weight": 10 ** rng.uniform(-DECADES / 2, DECADES / 2, m),
        "age_s": rng.uniform(0, 1e7, m),
        "total_steps": total_steps,
        "remaining_steps": np.where(rng.random(m) < 0.2, np.inf, total_steps * rng.random(m)),
        "received_s": rng.uniform(0, 1000, (m, n)),
        "isolated_s": 10 ** rng.uniform(-9, 9, m),
        "attained_gpu_s": rng.uniform(0, 1e7, m),
        "deadline_s": np.where(rng.random(m) < 0.5, np.inf, rng.uniform(-1e3, 1e6, m)),
        "price_per_gpu_hour": rng.choice([0, 0.5, 2, 3.1], n),
        "restart_s": rng.uniform(0, 300, m),
        "team": np.arange(m) % 3,
        "team_backlog_s": rng.uniform(0, 1e4, m),
    }


@examples(100)
@given(extreme_problems())
@pytest.mark.parametrize("name", POLICIES)
def test_a_problem_over_many_orders_of_magnitude_is_solved(name, problem):
    decision = POLICIES[name](problem)
    shares = np.eye(len(problem.nodes) + 1)[decision.assignment, :-1] if decision.shares is None else decision.shares
    assert np.isfinite([decision.objective, decision.bound, *decision.prices]).all()
    assert (shares.sum(axis=1) <= 1 + 1e-6).all()
    assert (problem.usage @ shares.sum(axis=0) <= problem.capacity * (1 + 1e-6)).all()
    assert shares.any()


@pytest.mark.parametrize("column", ["weight", "job_weight"])
@pytest.mark.parametrize("weight", [1e300, 1e-300])
def test_a_weight_that_no_solver_can_tell_from_rounding_is_refused_by_name(column, weight):
    with pytest.raises(InvalidProblem, match=f"{column}, row 1: must not be"):
        Problem.of([[1.0], [1.0]], [[1]], [4], **{column: [1.0, weight]})
