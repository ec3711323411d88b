"""Lifetimes of nodes by age: rates in bands, censored intervals, and the mean time that is left."""

import numpy as np
import pytest

from estimation.lifetimes_by_age import BANDS_S, DAY_S, HOUR_S, LifetimesByAge


def test_with_one_rate_for_all_ages_the_mean_time_left_is_the_same() -> None:
    constant = LifetimesByAge(np.full(len(BANDS_S), 1 / 7200))
    for age_s in (0.0, 100.0, HOUR_S, 3 * DAY_S, 100 * DAY_S):
        assert constant.mean_left_s(age_s) == pytest.approx(7200)
    assert constant.times(4).mean_left_s(HOUR_S) == pytest.approx(1800)


def test_rates_of_exponential_lifetimes_with_censoring_are_found() -> None:
    chance = np.random.default_rng(0)
    lives, cut = chance.exponential(6 * HOUR_S, 20_000), chance.uniform(0, 20 * HOUR_S, 20_000)
    found = LifetimesByAge.observed(np.minimum(lives, cut), lives <= cut, mean_s=6 * HOUR_S)
    assert found.rate[:4] == pytest.approx(np.full(4, 1 / (6 * HOUR_S)), rel=0.15)


def test_the_mean_time_left_is_that_of_the_lifetimes_which_reached_the_age() -> None:
    """A mixture of short and long lives, as spot machines have."""
    chance = np.random.default_rng(0)
    lives = np.where(
        chance.random(50_000) < 0.8, chance.exponential(HOUR_S / 2, 50_000), chance.exponential(DAY_S, 50_000)
    )
    found = LifetimesByAge.observed(lives, np.ones(len(lives), dtype=np.bool_), mean_s=6 * HOUR_S)
    for age_s in (0.0, HOUR_S / 2, 4 * HOUR_S):
        assert found.mean_left_s(age_s) == pytest.approx((lives[lives > age_s] - age_s).mean(), rel=0.25)


def test_a_band_of_which_nothing_is_known_has_the_rate_of_the_mean() -> None:
    lengths = np.full(1000, HOUR_S / 8)
    found = LifetimesByAge.observed(lengths, np.ones(1000, dtype=np.bool_), mean_s=DAY_S)
    assert found.rate[0] == pytest.approx(8 / HOUR_S, rel=0.2)
    assert found.rate[1:] == pytest.approx(np.full(len(BANDS_S) - 1, 1 / DAY_S))
