"""Intervals over many futures, draws of what is unknown, and their correction by what happened."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import ndtri

from allocation.policies.fifo import fifo
from estimation.estimate import Estimate
from estimation.scaling import Source
from forecast.calibration import MOST_SCORE, Correction, ForecastClass, Outcome, censored_quantiles, score
from forecast.draws import MOST_ARRIVALS, arrivals, draw_futures
from forecast.future import HORIZON_S, OutOfTime
from forecast.intervals import forecast
from forecast.present import Rounds
from tests.forecast.cluster import HOUR_S, known, present_of

FIFO = Rounds(fifo, 60.0, strict=True)
CLASS = ForecastClass.of("finish", [7000.0, 7200.0, 7400.0], known_length=True)


def test_what_is_known_has_no_width() -> None:
    present = present_of([600.0] * 4 + [300.0], running=[0, 1, 2, 3])
    found = forecast(present, known(present), FIFO, draws=4)
    assert found.start_s[4] == pytest.approx([600] * 3)
    assert found.finish_s[4] == pytest.approx([900] * 3)
    assert found.gpu_type.tolist() == [0] * 5
    assert found.type_part.tolist() == [1] * 5


def test_a_forecast_without_time_for_one_future_says_so() -> None:
    present = present_of([600.0, 300.0], running=[0])
    with pytest.raises(OutOfTime, match="no future of 2 jobs was played to its end"):
        forecast(present, known(present), FIFO, budget_s=-1.0)


def test_places_in_the_queue_follow_the_starts() -> None:
    present = present_of([600.0, 700.0, 800.0, 900.0, 60.0, 60.0, 60.0], running=[0, 1, 2, 3])
    assert forecast(present, known(present), FIFO, draws=2).place.tolist() == [0, 0, 0, 0, 1, 2, 3]


def test_an_unknown_length_is_drawn_from_its_estimate() -> None:
    """Four of five futures lie between the limits that the estimate itself has."""
    estimate = Estimate(2 * HOUR_S, 0.8, Source.SIMILAR, 20)
    present = present_of([np.inf], running=[0])
    unknowns = known(present)
    unknowns = replace(unknowns, left=np.array([np.nan]), duration=[estimate], done_s=np.array([600.0]))
    found = forecast(present, unknowns, FIFO, draws=100)
    expected = [estimate.quantile_left(p, 600.0) for p in (0.1, 0.5, 0.9)]
    assert found.finish_s[0] == pytest.approx(expected, rel=0.1)


def test_a_sample_that_still_runs_is_longer_than_it_has_run() -> None:
    """Nothing is known of its length but that it has run for ten hours: it comes again with more than that."""
    present = present_of([600.0, np.inf], running=[0], samples=1)
    unknowns = known(present, submitted_s=[-10 * HOUR_S])
    unknowns = replace(unknowns, left=np.array([600.0, np.nan]), done_s=np.array([0.0, 10 * HOUR_S]))
    for draw in draw_futures(present, unknowns, draws=20, until_s=30 * HOUR_S, seed=1):
        assert (draw.left[1:] > 10 * HOUR_S).all()


def test_how_busy_the_coming_day_is_is_less_certain_than_the_hours_before_were() -> None:
    """From 24 past hours, half of them busy: the mean of a day varies by chance, and by what is not known of it."""
    rng, busy = np.random.default_rng(0), np.repeat(np.arange(0.0, 24, 2), 10)
    submitted_s = -np.sort(busy + 0.5)[::-1] * HOUR_S
    day = {"known_s": 24 * HOUR_S, "history_s": 24 * HOUR_S}
    totals = [arrivals(submitted_s, 24 * HOUR_S, rng, **day)[0].size for _ in range(400)]
    assert np.mean(totals) == pytest.approx(120, rel=0.1)
    assert np.std(totals) > 1.2 * 5 * np.sqrt(24)  # the deviation of 24 hours drawn at random


def test_arrivals_repeat_the_time_of_day() -> None:
    """Jobs came at every hour from 6 to 7 h ago, and one day earlier: they come again in about 18 h, not at once."""
    submitted_s = -np.concatenate([np.linspace(6, 7, 20), np.linspace(30, 31, 20), np.linspace(54, 55, 20)]) * HOUR_S
    known_s = 56 * HOUR_S
    sample, when_s = arrivals(submitted_s, 24 * HOUR_S, np.random.default_rng(0), known_s=known_s, history_s=known_s)
    assert (np.diff(when_s) >= 0).all()
    assert ((when_s > 15 * HOUR_S) & (when_s < 21 * HOUR_S)).all()
    assert set(sample.tolist()) <= set(range(60))


@pytest.mark.parametrize("submitted_s", [[], [-1800.0, -1790.0], [-5000.0]])
def test_without_three_hours_of_history_nothing_arrives(submitted_s: list[float]) -> None:
    young = {"known_s": 5000.0, "history_s": 5000.0}
    sample, when_s = arrivals(np.array(submitted_s), HORIZON_S, np.random.default_rng(0), **young)
    assert not sample.size
    assert not when_s.size


def test_many_submissions_that_reach_back_for_minutes_come_at_the_same_rate() -> None:
    """Only the newest are samples: 60 of the last ten minutes, of a cluster that is weeks old."""
    submitted_s = -np.linspace(595, 5, 60)
    sample, when_s = arrivals(submitted_s, HOUR_S, np.random.default_rng(0), known_s=600.0, history_s=1e6)
    assert np.histogram(when_s, bins=[0, 600, 1200, 1800, 2400, 3000, 3600])[0].tolist() == [60] * 6
    assert np.bincount(sample).tolist() == [6] * 60


def test_one_submission_after_weeks_of_nothing_is_rare() -> None:
    known_s = 14 * 24 * HOUR_S
    sample, _ = arrivals(np.array([-1000.0]), HORIZON_S, np.random.default_rng(0), known_s=known_s, history_s=known_s)
    assert sample.size <= 3


def test_arrivals_are_limited_however_many_came() -> None:
    sample, when_s = arrivals(
        -np.linspace(0.9, 0.1, 2000), HORIZON_S, np.random.default_rng(0), known_s=1.0, history_s=1e6
    )
    assert len(sample) == MOST_ARRIVALS
    assert (np.diff(when_s) >= 0).all()


def test_a_draw_has_the_jobs_first_and_then_what_arrives() -> None:
    present = present_of([600.0, 60.0, 60.0, 60.0], running=[0], samples=3)
    samples = known(present, submitted_s=[-9000, -5400, -1800])
    draw = next(draw_futures(present, samples, draws=1, until_s=6 * HOUR_S, seed=3))
    assert draw.rows[0] == 0
    assert draw.arrival_s[0] == 0
    assert len(draw.rows) == 7  # one in each of six hours
    assert set(draw.rows[1:].tolist()) <= {1, 2, 3}


def test_an_interval_that_was_too_narrow_becomes_wider_by_what_happened() -> None:
    true_s = 7200 * np.exp(0.3 * ndtri((np.arange(400) + 0.5) / 400))  # quantiles of a log-normal quantity
    correction = Correction.of((CLASS, Outcome(7000, 7200, 7400, float(one))) for one in true_s)
    low, median, high = correction.corrected(CLASS, np.array([7000.0, 7200.0, 7400.0]))
    assert np.mean((low <= true_s) & (true_s <= high)) == pytest.approx(0.8, abs=0.03)
    assert median == pytest.approx(7200, rel=0.01)


def test_a_few_outcomes_hardly_change_an_interval() -> None:
    quantiles = np.array([6000.0, 7200.0, 8400.0])
    correction = Correction.of([(CLASS, Outcome(6000, 7200, 8400, 20_000))])
    assert correction.corrected(CLASS, quantiles) == pytest.approx(quantiles, rel=0.25)


def test_another_class_is_not_corrected() -> None:
    quantiles = np.array([6000.0, 7200.0, 8400.0])
    correction = Correction.of([(CLASS, Outcome(6000, 7200, 8400, 20_000))] * 100)
    other = ForecastClass.of("start", quantiles, known_length=True)
    assert correction.corrected(other, quantiles).tolist() == quantiles.tolist()


def test_jobs_about_which_all_futures_agree_do_not_narrow_the_intervals_of_others() -> None:
    """Two of three jobs run to an end that is known; the interval of the third is right."""
    true_s = 7200 * np.exp(0.3 * ndtri((np.arange(100) + 0.5) / 100))
    wide = 7200 * np.exp(0.3 * ndtri([0.1, 0.5, 0.9]))
    classes = [ForecastClass.of("finish", quantiles, known_length=True) for quantiles in (wide, [7200.0] * 3)]
    certain = [(classes[1], Outcome(7200, 7200, 7200, 7200))] * 200
    correction = Correction.of(
        [*certain, *((classes[0], Outcome(wide[0], wide[1], wide[2], float(one))) for one in true_s)]
    )
    assert correction.corrected(classes[0], wide) == pytest.approx(wide, rel=0.05)


def test_forecasts_that_have_not_come_true_yet_count() -> None:
    """Events after one to 100 hours, forecast all at once and rightly; after 20 hours only the first are known."""
    true_s, now_s = np.arange(1, 101) * HOUR_S, 20 * HOUR_S
    quantiles = np.array([10.0, 50.0, 90.0]) * HOUR_S
    of_class = ForecastClass.of("finish", quantiles, known_length=False)
    low_s, median_s, high_s = quantiles.tolist()
    known_now = [Outcome(low_s, median_s, high_s, min(one, now_s), one <= now_s) for one in true_s.tolist()]
    low, *_ = Correction.of((of_class, one) for one in known_now).corrected(of_class, quantiles)
    assert low == pytest.approx(10 * HOUR_S, rel=0.1)
    without = Correction.of((of_class, one) for one in known_now if one.happened)
    assert without.corrected(of_class, quantiles)[1] < 0.5 * quantiles[1]


def test_without_what_is_still_to_come_quantiles_are_the_usual_ones() -> None:
    values = np.random.default_rng(0).normal(size=37)
    assert censored_quantiles(values, np.ones(37, dtype=np.bool_)) == pytest.approx(
        np.quantile(values, (0.1, 0.5, 0.9))
    )


def test_scores_are_one_at_the_ends_of_the_interval() -> None:
    assert score(Outcome(1000, 2000, 4000, 2000)) == 0
    assert score(Outcome(1000, 2000, 4000, 4000)) == pytest.approx(1, abs=0.1)
    assert score(Outcome(1000, 2000, 4000, 1000)) == pytest.approx(-1, abs=0.1)


def test_forecasts_of_no_width_that_failed_correct_the_next_to_no_more_than_the_horizon() -> None:
    """Each was hours off an interval of seconds: a score of 30 without a limit."""
    correction = Correction.of([(CLASS, Outcome(7200, 7200, 7200, 40_000))] * 100)
    assert score(Outcome(7200, 7200, 7200, 1e9)) == MOST_SCORE
    assert (correction.corrected(CLASS, np.array([7200.0, 7200.0, 7200.0])) < 3 * HOUR_S).all()
    assert np.isinf(correction.corrected(CLASS, np.array([7000.0, 7200.0, 200_000.0]))).all()
