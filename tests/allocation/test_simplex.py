"""Small linear programs, beside HiGHS."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from allocation.solvers.linear_program import best_corner, maximize


@given(seed=st.integers(0, 10**6), rows=st.integers(1, 30), columns=st.integers(1, 8), degenerate=st.booleans())
def test_the_value_is_that_of_highs_and_the_duals_prove_it(seed, rows, columns, degenerate):
    rng = np.random.default_rng(seed)
    A = rng.integers(0, 3, (rows, columns)) - rng.integers(0, 2, (rows, columns)) * rng.random((rows, columns))
    A = np.vstack([A, np.ones(columns)])
    c, b = rng.normal(size=columns), np.append(np.zeros(rows) if degenerate else rng.random(rows), 1)
    found = best_corner(c, A, b, tolerance=1e-9)
    assert found is not None
    assert c @ found.x == pytest.approx(-linprog(-c, A, b).fun, abs=1e-7)
    assert (A @ found.x <= b + 1e-9).all()
    assert (found.duals @ A >= c - 1e-9).all()
    assert (found.duals >= 0).all()


def test_a_program_without_a_best_answer_is_left_to_highs():
    assert best_corner(np.ones(2), np.array([[1.0, -1.0]]), np.ones(1), tolerance=1e-9) is None


def test_upper_bounds_and_rows_that_zero_breaks_are_heeded():
    assert maximize([1], np.array([[1.0]]), [3], most=2).value == pytest.approx(2)
    assert maximize([-1], np.array([[-1.0]]), [-3]).value == pytest.approx(-3)
