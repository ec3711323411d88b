"""One configuration per job, where of some types nothing is left."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from allocation.solvers.integer_assignment import solve_assignment
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
