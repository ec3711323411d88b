"""What is left of a log-normal quantity, beside draws from it."""

import numpy as np
import pytest

from estimation.estimate import Estimate
from estimation.scaling import Source


def estimate(mean: float, spread: float) -> Estimate:
    return Estimate(mean, spread, Source.SIMILAR, 5)


@pytest.mark.parametrize("after", [0, 50, 400])
def test_what_is_left_is_the_mean_and_the_quantiles_of_the_draws_that_last_longer(after: float) -> None:
    mean, spread = 100.0, 0.8
    draws = np.random.default_rng(1).lognormal(np.log(mean) - spread**2 / 2, spread, 400_000)
    left = draws[draws > after] - after
    assert estimate(mean, spread).mean_left(after) == pytest.approx(left.mean(), rel=0.05)
    for p in (0.1, 0.5, 0.9):
        assert estimate(mean, spread).quantile_left(p, after) == pytest.approx(np.quantile(left, p), rel=0.05)


def test_what_is_left_grows_without_end_and_without_a_jump_once_far_more_has_gone_than_was_expected() -> None:
    ages = np.geomspace(100, 1e7, 200)
    left = np.array([estimate(100, 0.5).mean_left(age) for age in ages])
    assert (np.diff(left[ages > 1000]) > 0).all()
    steps = left[1:] / left[:-1]
    assert steps.max() < 1.2


def test_the_limits_of_what_is_left_stay_apart_once_far_more_has_gone_than_was_expected() -> None:
    for age in np.geomspace(100, 1e7, 50):
        least, mean, most = (
            estimate(100, 0.2).quantile_left(0.1, age),
            estimate(100, 0.2).mean_left(age),
            estimate(100, 0.2).quantile_left(0.9, age),
        )
        assert 0 < least < mean < most


def test_of_a_known_quantity_the_rest_is_left_and_never_less_than_nothing() -> None:
    known = estimate(100, 0)
    assert [known.mean_left(40), known.quantile_left(0.9, 40), known.mean_left(140)] == [60, 60, 0]
