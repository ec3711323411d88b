"""Fading means of what jobs report: many equal reports at once are as many one by one."""

import pytest

from estimation.fading_means import MOST_NOISES, FadingNoise, FadingRate


@pytest.mark.parametrize("before", [0, 3, MOST_NOISES - 1, MOST_NOISES, 100])
@pytest.mark.parametrize("reports", [1, 2, MOST_NOISES, 60])
def test_equal_reports_of_noise_are_merged_at_once(before: int, reports: int) -> None:
    one_by_one = at_once = FadingNoise().with_reports(1.0, 8.0, before) if before else FadingNoise()
    for _ in range(reports):
        one_by_one = one_by_one.with_reports(4.0, 2.0)
    assert at_once.with_reports(4.0, 2.0, reports) == pytest.approx(one_by_one)


def test_the_mean_of_few_reports_is_plain_and_that_of_many_fades() -> None:
    assert FadingNoise().with_reports(1.0, 3.0).with_reports(3.0, 5.0) == (2.0, 4.0, 2)
    assert FadingNoise().with_reports(1.0, 1.0, 1000).with_reports(3.0, 3.0, 100).sqr == pytest.approx(3.0, rel=0.01)


def test_a_rate_is_weighted_by_its_reports_and_has_their_spread() -> None:
    assert FadingRate().with_reports(10.0, 3).with_reports(20.0, 1) == pytest.approx((12.5, 4.330127, 4))
