"""Probabilities of meeting deadlines: from futures, and judged by what came."""

from dataclasses import replace

import numpy as np
import pytest

from allocation.policies.fifo import fifo
from estimation.estimate import Estimate
from estimation.scaling import Source
from forecast.deadlines import Calibration, Outcome, in_time
from forecast.future import DAY_S, HORIZON_S, Played, play
from forecast.intervals import forecast
from forecast.present import Present, Rounds
from tests.forecast.cluster import HOUR_S, as_told, known, present_of

FIFO = Rounds(fifo, 60.0, strict=True)


def futures(*finish_s: float, done: bool = True) -> list[Played]:
    """Futures of one job that ends at these times; inf: not within the horizon."""
    ends = np.array(finish_s)[:, None]
    return [Played(np.zeros(1), end, np.zeros(1, dtype=np.int64), np.isfinite(end) & done) for end in ends]


def probability(played: list[Played], deadline_s: float) -> float:
    return float(in_time(played, np.array([deadline_s]))[0])


def with_deadlines(present: Present, *deadline_s: float) -> Present:
    return replace(present, problem=replace(present.problem, deadline_s=np.array(deadline_s)))


def test_it_is_the_part_of_the_futures_and_never_certain() -> None:
    assert probability(futures(10.0, 20.0, 30.0), 20.0) == pytest.approx(2.5 / 4)
    assert probability(futures(10.0, 20.0, 30.0), 30.0) == pytest.approx(3.5 / 4)
    assert probability(futures(10.0, 20.0, 30.0), 5.0) == pytest.approx(0.5 / 4)


def test_a_job_that_is_stopped_by_its_time_limit_is_not_done_in_time() -> None:
    assert probability(futures(10.0, done=False), 20.0) == pytest.approx(0.25)
    limited = replace(present_of([HOUR_S, HOUR_S]), limit_s=np.array([600.0, 2 * HOUR_S]))
    assert play(limited, as_told(limited), FIFO).done.tolist() == [False, True]


@pytest.mark.parametrize("deadline_s", [np.inf, 0.0, -60.0])
def test_without_a_deadline_to_come_there_is_none(deadline_s: float) -> None:
    assert np.isnan(probability(futures(10.0), deadline_s))


def test_beyond_the_horizon_it_is_known_only_if_all_futures_have_ended() -> None:
    assert probability(futures(10.0, DAY_S), HORIZON_S + DAY_S) == pytest.approx(2.5 / 3)
    assert np.isnan(probability(futures(10.0, np.inf), HORIZON_S + DAY_S))
    assert probability(futures(10.0, np.inf), HORIZON_S) == pytest.approx(1.5 / 3)


def test_jobs_that_wait_and_run_have_one_from_their_length_and_the_queue() -> None:
    about_an_hour = Estimate(HOUR_S * np.exp(0.5), 1.0, Source.COMPLETED, 0)  # its median is an hour
    present = with_deadlines(present_of([HOUR_S] * 5, gpus=[4] * 5, running=[0]), HOUR_S, 2 * HOUR_S, *[HOUR_S] * 3)
    unknown = replace(known(present), left=np.full(5, np.nan), duration=[about_an_hour] * 5)
    runs, second, third, *_ = forecast(present, unknown, FIFO, draws=32).in_time.tolist()
    assert runs == pytest.approx(0.5, abs=0.05), "half of such jobs end within an hour"
    assert 0.1 < second < 0.6
    assert third < second


def test_brier_score_and_bins_are_those_of_an_example_by_hand() -> None:
    found = Calibration.of([Outcome(0.95, True), Outcome(0.95, False), Outcome(0.25, False), Outcome(0.15, True)])
    assert found is not None
    assert found.brier == pytest.approx((0.05**2 + 0.95**2 + 0.25**2 + 0.85**2) / 4)
    assert (found.met, found.brier_of_mean) == (0.5, 0.25)
    low, high = found.bins
    assert (low.least, low.most, low.outcomes, low.met) == (0.1, 0.3, 2, 0.5)
    assert low.stated == pytest.approx(0.2)
    assert (high.least, high.most, high.met) == (0.9, 1.0, 0.5)
    assert found.too_few
    assert high.too_few


def test_probabilities_that_are_right_are_calibrated_and_better_than_the_mean() -> None:
    chance = np.random.default_rng(0)
    stated = chance.uniform(0, 1, 20_000)
    met = chance.uniform(0, 1, 20_000) < stated
    found = Calibration.of(Outcome(*one) for one in zip(stated.tolist(), met.tolist(), strict=True))
    assert found is not None
    assert all(one.met == pytest.approx(one.stated, abs=0.03) for one in found.bins)
    assert sum(one.outcomes for one in found.bins) == 20_000
    assert found.brier == pytest.approx(1 / 6, abs=0.01)
    assert found.brier < found.brier_of_mean


def test_without_outcomes_there_is_nothing_to_judge() -> None:
    assert Calibration.of([]) is None
