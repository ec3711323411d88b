"""Intervals over many futures, draws of what is unknown, and their correction by what happened."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import ndtri

from allocation.policies.fifo import fifo
from estimation.estimate import Estimate
from estimation.scaling import Source
from forecast.calibration import MOST_SCORE, Correction, ForecastClass, Outcome, score
from forecast.draws import MOST_ARRIVALS, arrivals, draw_futures
from forecast.future import HORIZON_S, OutOfTime, Rounds
from forecast.intervals import forecast
from tests.forecast.cluster import HOUR_S, known, present_of

FIFO = Rounds(fifo, 60.0, strict=True)
CLASS = ForecastClass.of("finish", 7200.0, known_length=True)


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
    other = ForecastClass.of("start", 7200.0, known_length=True)
    assert correction.corrected(other, quantiles).tolist() == quantiles.tolist()


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
