"""The call of the solver: answers with their bound, and no silent wrong ones."""

import numpy as np
import pytest

from allocation.decision import Status
from allocation.solvers.linear_program import SolverFailed, maximize


def test_a_linear_program_answers_with_the_gain_per_unit_of_each_row():
    best = maximize([3, 2], [[1, 1], [1, 0]], [4, 1])
    assert (best.value, best.bound, best.duals.tolist()) == (pytest.approx(9), pytest.approx(9), [2, 1])


def test_an_integer_program_answers_in_whole_numbers():
    best = maximize([5, 4], [[6, 5]], [10], most=1, integrality=np.ones(2, dtype=int))
    assert (best.x.tolist(), best.value, best.status) == ([1, 0], 5, Status.OPTIMAL)


def test_an_infeasible_problem_is_an_error_and_not_an_answer():
    with pytest.raises(SolverFailed):
        maximize([1], [[1], [-1]], [1, -2])


def test_an_unbounded_problem_is_an_error_and_not_an_answer():
    with pytest.raises(SolverFailed):
        maximize([1], [[-1]], [1])


@pytest.fixture
def hard():
    """An integer program that no solver proves in half a second."""
    rng = np.random.default_rng(1)
    weights, values = rng.integers(100, 1000, (20, 200)), rng.integers(100, 1000, 200)
    return values, weights, weights.sum(axis=1) // 2


def test_an_integer_program_stopped_before_the_gap_is_an_error_and_not_an_answer(hard):
    with pytest.raises(SolverFailed, match="gap"):
        maximize(*hard, most=1, integrality=np.ones(200, dtype=int), time_limit_s=0.5, gap=0)


def test_an_integer_program_answers_with_a_bound_that_no_answer_exceeds(hard):
    best = maximize(*hard, most=1, integrality=np.ones(200, dtype=int), gap=0.05)
    assert best.value <= best.bound <= best.value * 1.05
