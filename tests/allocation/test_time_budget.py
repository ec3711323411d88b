"""A round's time limit is counted from when the policy is asked."""

from math import inf

import numpy as np
import pytest

from allocation.problem import Problem
from allocation.time_budget import UNLIMITED, TimeBudget
from tests.allocation.set_clock import set_clock


@pytest.fixture(autouse=True)
def _a_second_each_look(monkeypatch):
    set_clock(monkeypatch, step_s=1)


def test_a_deadline_comes_when_the_time_limit_of_the_round_is_over():
    budget = TimeBudget.of(Problem.of(np.ones((1, 1)), [[1]], [1], solve_limit_s=2))
    assert [budget.left_s(), budget.left_s(), budget.left_s()] == [1, 0, 0]
    assert budget.passed()


def test_without_a_time_limit_it_never_comes():
    budget = TimeBudget.of(Problem.of(np.ones((1, 1)), [[1]], [1]))
    assert (budget.left_s(), budget.passed(), UNLIMITED.passed()) == (inf, False, False)


@pytest.mark.parametrize(("seconds", "left_s"), [(3, 2), (30, 7)])
def test_the_sooner_of_two_counts(seconds, left_s):
    assert TimeBudget.after(9).at_most(seconds).left_s() == left_s
