"""Expected times, losses and probabilities are those of runs that are interrupted at random."""

import numpy as np
import pytest

from estimation.interrupted_work import Interruptions, duration_of, expected_loss, expected_time, expected_time_by_age
from estimation.node_lifetimes import kaplan_meier
from tests.estimation.interrupted_runs import durations, weibull

SPOT = Interruptions(mean_up_s=7200, mean_down_s=1800)
NOTIFIED = SPOT._replace(notified=0.8, notice_s=120.0)
RUNS = 20_000


@pytest.mark.parametrize("interruptions", [SPOT, NOTIFIED], ids=["unannounced", "with notice"])
@pytest.mark.parametrize("x", [900.0, 7200.0])
def test_the_expected_time_of_a_segment_is_the_mean_of_runs(x: float, interruptions: Interruptions) -> None:
    mean = durations(RUNS, [x], 90.0, interruptions).mean()
    assert expected_time(np.array(x), 90.0, interruptions) == pytest.approx(mean, rel=0.03)


def test_without_interruptions_work_takes_as_long_as_it_is() -> None:
    calm = Interruptions(mean_up_s=np.inf, mean_down_s=1800)
    assert expected_time(np.array(900.0), 90.0, calm) == 900
    assert expected_loss(np.array(900.0), calm) == 0
    assert duration_of(np.array([900.0]), 90.0, calm).done_within(900) == 1


@pytest.mark.parametrize("age_s", [0.0, 5000.0])
def test_the_expected_time_by_age_is_the_mean_of_runs_for_lifetimes_that_are_not_exponential(age_s: float) -> None:
    draw, rng = weibull(5000, 0.5), np.random.default_rng(1)
    lengths = np.array([draw(rng) for _ in range(4000)])
    curve = kaplan_meier(lengths, np.ones(len(lengths), dtype=np.bool_))
    mean = durations(RUNS, [3000.0], 90.0, SPOT, lifetime=draw, age_s=age_s).mean()
    estimate = expected_time_by_age(np.array(3000.0), 90.0, curve, age_s=age_s, mean_down_s=SPOT.mean_down_s)
    assert estimate == pytest.approx(mean, rel=0.05)


def test_a_segment_longer_than_any_lifetime_is_never_done() -> None:
    curve = kaplan_meier(np.array([100.0, 200.0]), np.array([True, True]))
    assert expected_time_by_age(np.array(300.0), 10.0, curve, mean_down_s=60.0) == np.inf


def test_the_expected_loss_is_the_work_that_one_pass_loses() -> None:
    rng = np.random.default_rng(3)
    lived = rng.exponential(7200, 100_000)
    assert expected_loss(np.array(3600.0), SPOT) == pytest.approx(np.where(lived < 3600, lived, 0).mean(), rel=0.02)


@pytest.mark.parametrize("interruptions", [SPOT, NOTIFIED], ids=["unannounced", "with notice"])
@pytest.mark.parametrize("segments", [[900.0] * 12, [1000.0]], ids=["many segments", "one segment"])
def test_the_probability_of_being_done_in_time_is_the_part_of_runs_that_are(
    segments: list[float], interruptions: Interruptions
) -> None:
    took = durations(RUNS // 4, segments, 90.0, interruptions)
    duration = duration_of(np.array(segments), 90.0, interruptions)
    for factor in (0.99, 1.0, 1.1, 1.3, 1.6, 2.5):
        seconds = factor * sum(segments)
        assert duration.done_within(seconds) == pytest.approx((took <= seconds).mean(), abs=0.05)
