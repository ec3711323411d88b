"""Water filling ends, and where a linear program of the first level ends: ties, near ties, types that are used up."""

import numpy as np
import pytest
from scipy.optimize import linprog

from allocation.solvers.water_filling import fill_evenly

GANGS_OF_THREE_TYPES = np.array([[1, 2, 4, 0, 0, 0, 0, 0, 0], [0, 0, 0, 1, 2, 0, 0, 0, 0], [0, 0, 0, 0, 0, 1, 2, 4, 8]])
SPEEDUP = np.array([1, 2, 4, 1, 2, 1, 2, 4, 8])


def highest_level(a, usage, capacity):
    """The first level, as a linear program of all rows."""
    m, K = a.shape
    unit = a.max(axis=1).min()
    rows = [
        *(np.concatenate([np.eye(m)[i].repeat(K) * (-a / unit).ravel(), [1]]) for i in range(m)),
        *(np.append(np.eye(m)[i].repeat(K), 0) for i in range(m)),
        *(np.append(np.tile(used, m), 0) for used in usage),
    ]
    limits = np.concatenate([np.zeros(m), np.ones(m), capacity])
    bounds = [(0, 1 if rate > 0 else 0) for rate in a.ravel()] + [(0, None)]
    exact = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
    return -unit * linprog(-np.eye(m * K + 1)[-1], rows, limits, bounds=bounds, options=exact).fun


def test_rates_that_differ_in_the_last_bit_end_as_equal_ones_do():
    """Three jobs, each as fast on one type as on another, but for rounding; one cannot use four GPUs, one not one."""
    unit = np.array([0.9401481469683125, 3.8004809660493755, 118.87688211282178])[:, None]
    can = np.array([[1, 1, 1, 0, 1, 1, 1, 1, 1], [1, 1, 0, 1, 1, 1, 1, 0, 1], [1, 1, 1, 0, 1, 1, 1, 1, 1]])
    a = unit * SPEEDUP * can
    rng = np.random.default_rng(0)
    for ulps in rng.integers(-3, 4, (50, *a.shape)):
        best = fill_evenly(a * (1 + ulps * 2.0**-53), GANGS_OF_THREE_TYPES, np.array([4, 4, 8]))
        assert best.level == pytest.approx(7.5211851757465)
        assert (a * best.shares).sum(axis=1) == pytest.approx([7.5211851757465, 7.6009619320987, 475.5075284512871])


@pytest.mark.parametrize("seed", range(60))
def test_ties_of_types_end_at_the_level_of_the_linear_program(seed):
    """Rates of gangs are whole multiples of a job's own unit, on types of which some are as good as others."""
    rng = np.random.default_rng(seed)
    unit = np.exp(rng.normal(0, 3, (rng.integers(1, 7), 1)))
    a = unit * SPEEDUP * (rng.random((len(unit), SPEEDUP.size)) < 0.8) * (1 + rng.integers(-2, 3, SPEEDUP.size) * 2e-16)
    a[:, 0] = unit[:, 0]
    capacity = np.array([4, 2, 8])
    best = fill_evenly(a, GANGS_OF_THREE_TYPES, capacity)
    assert best.level == pytest.approx(highest_level(a, GANGS_OF_THREE_TYPES, capacity), rel=1e-6)


def test_a_type_that_is_used_up_without_a_price_offers_no_further_rate():
    """Two heavy jobs use up the last two types at the first level, where the price of one of them proves it.

    At the next level the others have the first two types, on which gangs of two cannot run.
    """
    weight = np.array([1 / 700, 1 / 6.6, 1 / 160, 1 / 111, 300, 180, 1])
    rate = np.ones((7, 12)) * [1, 1, 1, 1, 0, 0, 1.75, 1.75, 0, 0, 3, 0]
    a = rate / weight[:, None]
    best = fill_evenly(a, np.kron([1, 2, 4], np.eye(4, dtype=int)), np.array([1, 1, 4, 2]))
    rates = (a * best.shares).sum(axis=1)
    assert rates[[4, 5]] == pytest.approx(4.75 / 480)
    assert rates[6] == pytest.approx(1)
    assert rates[:4] == pytest.approx(1 / weight[:4].sum())
