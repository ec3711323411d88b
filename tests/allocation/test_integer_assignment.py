"""One configuration per job, where of some types nothing is left."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocation.solvers import integer_assignment
from allocation.solvers.integer_assignment import solve_assignment
from allocation.solvers.lagrangian_dual import SeparableProblem
from tests.hypothesis_examples import examples

USAGE = np.array([[1, 2, 0, 0, 1], [0, 0, 1, 2, 1]])
"""One or two GPUs of either type, and one of each."""


def test_no_job_gets_a_type_without_gpus_and_its_price_is_the_largest_gain():
    value = np.array([[1.0, 0, 5.0, 0, 0], [1.0, 1.5, 4.0, 9.0, 0]])
    found = solve_assignment(value, USAGE, np.array([3, 0]), gap=0)
    assert found.assignment.tolist() == [0, 1]
    assert (found.value, found.bound) == (2.5, 2.5)
    assert np.allclose(found.prices, [0, 4])  # 5 less what the first has; of the second, (9 - 1.5) / 2


@examples(100)
@given(st.lists(st.lists(st.integers(0, 20), min_size=5, max_size=5), min_size=1, max_size=8), st.integers(0, 4))
def test_at_the_prices_no_job_prefers_a_type_without_gpus(rows, left):
    value = np.array(rows, dtype=float)
    found = solve_assignment(value, USAGE, np.array([left, 0]), gap=0)
    gain = np.where(value > 0, value - found.prices @ USAGE, 0)
    best_of_the_rest = gain[:, :2].max(axis=1, initial=0)
    assert (gain[:, 2:].max(axis=1) <= best_of_the_rest + 1e-6).all()
    assert set(found.assignment.tolist()) <= {-1, 0, 1}


@pytest.mark.parametrize("seed", range(20))
def test_what_jobs_of_one_type_each_are_worth_is_known_without_highs(seed: int) -> None:
    drawn = np.random.default_rng(seed)
    usage = np.array([[1, 2, 4, 0, 0], [0, 0, 0, 1, 3]])
    uses_first = drawn.random(12) < 0.5
    possible = np.where(uses_first[:, None], usage[0] > 0, usage[1] > 0) & (drawn.random((12, 5)) < 0.7)
    value = np.where(possible, drawn.integers(1, 6, (12, 5)) * 1.0, 0)
    separable = SeparableProblem(value, usage, np.array([7.0, 5.0]), np.ones(12, dtype=np.int64))
    columns, bound = integer_assignment._by_highs(separable, gap=0, time_limit_s=60)
    best = integer_assignment._best_on_one_type(separable)
    assert best == pytest.approx(separable.weighted_sum(columns)) == pytest.approx(bound)


def test_of_jobs_that_may_use_several_types_it_is_not_known() -> None:
    separable = SeparableProblem(np.ones((1, 2)), np.eye(2, dtype=np.int64), np.ones(2), np.ones(1, dtype=np.int64))
    assert integer_assignment._best_on_one_type(separable) == np.inf
