"""The latest of several events: quantiles of the maximum of independent times."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from estimation.types import Floats
from forecast.latest_event import latest_of

QUANTILES = st.lists(st.floats(1, 100_000), min_size=3, max_size=3).map(sorted).map(np.array)


def test_the_latest_of_one_event_is_that_event() -> None:
    assert latest_of([np.array([600.0, 3600.0, 9000.0])]) == pytest.approx([600, 3600, 9000], rel=1e-3)


def test_the_latest_of_two_equal_events_is_that_of_draws() -> None:
    event = np.array([600.0, 3600.0, 9000.0])
    normal = np.random.default_rng(0).standard_normal((2, 200_000))
    low, median, high = np.log(event + 60)
    drawn = median + normal * np.where(normal >= 0, high - median, median - low) / 1.2816
    expected = np.quantile(np.exp(drawn.max(axis=0)) - 60, (0.1, 0.5, 0.9))
    assert latest_of([event, event]) == pytest.approx(expected, rel=0.02)


def test_a_job_that_may_end_beyond_the_horizon_leaves_the_latest_open() -> None:
    assert np.isinf(latest_of([np.array([600.0, 3600.0, 9000.0]), np.array([600.0, np.inf, np.inf])])[1:]).all()
    assert np.isinf(latest_of([np.array([600.0, 3600.0, np.inf])])[2])


@given(st.lists(QUANTILES, min_size=1, max_size=5))
def test_the_latest_is_in_order_and_no_earlier_than_any_event(events: list[Floats]) -> None:
    found = latest_of(events)
    assert (np.diff(found) >= 0).all()
    assert (found >= 0.99 * np.stack(events).max(axis=0)).all()
