"""Guard of a policy: bands that are as wide as the lab's error and chance, and what is said outside them."""

from typing import Any

import numpy as np
import pytest

from insight_app.models import PolicyGuard
from insight_app.policy_effects.guard import (
    LEAST_JOBS,
    Band,
    Effect,
    Observed,
    Predicted,
    Verdict,
    expected,
    judge,
    lab_band,
    standard_error,
    window_spread,
)

State = PolicyGuard.State
FIGURES = {"avg_jct_h": 2.0, "queueing_h": 1.0, "restarts_per_job": 0.0, "utilization": 0.5}
BEFORE = {"avg_jct_h": 6.0, "queueing_h": 5.0, "restarts_per_job": 0.0, "utilization": 0.5}


def predicted(**change: Any) -> Predicted:
    """The lab is exact: what it simulated of the policy before is what happened."""
    usual = {"chosen": FIGURES, "present": BEFORE, "actual": BEFORE, "arrivals_per_h": 10.0}
    return Predicted(**({**usual, "spreads": [spread(1.0)]} | change))


def spread(hours: float, **change: float | None) -> dict[str, float | None]:
    """Between windows of so many hours before the change."""
    usual = dict.fromkeys(("avg_jct_h", "queueing_h", "restarts_per_job"), 0.0)
    return {"hours": hours, **usual, "utilization": 0.05} | change


def observed(jobs: int = 100, **change: Any) -> Observed:
    """What was predicted, with a spread of a tenth of an hour."""
    wave = 0.1 * np.sin(np.arange(jobs))
    usual = {
        "hours": jobs / 10,
        "jct_h": 2 + wave,
        "queueing_h": 1 + wave,
        "restarts": np.zeros(jobs),
        "came_after": np.ones(jobs, dtype=bool),
        "waits_h": 0.5 + wave,
        "arrivals": jobs,
        "utilization": 0.5,
    }
    return Observed(**(usual | change))


def effect(verdict: Verdict, measure: str) -> Effect:
    return next(effect for effect in verdict.effects if effect.measure == measure)


# -- bands -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("simulated", "actual", "band"),
    [
        (6.0, 6.0, (2, 2)),
        (6.0, 4.0, (2 / 1.5, 3)),
        (4.0, 6.0, (2 / 1.5, 3)),
        (0.0, 0.5, (1.5, 2.5)),
        (3.0, 0.0, (0, 5)),
    ],
)
def test_the_band_has_the_error_of_the_lab_on_the_policy_before_on_both_sides(
    simulated: float, actual: float, band: tuple[float, float]
) -> None:
    assert lab_band(2.0, simulated, actual) == pytest.approx(band)


def test_jobs_that_waited_under_the_policy_before_too_may_have_waited_as_long_as_then() -> None:
    assert expected(predicted(), "avg_jct_h", 1.0) == Band(2, 2)
    assert expected(predicted(), "avg_jct_h", 0.5) == Band(2, 4)
    assert expected(predicted(), "avg_jct_h", 0.0) == Band(2, 6)


def test_the_standard_error_of_jobs_that_wait_together_is_more_than_that_of_independent_ones() -> None:
    """Blocks of alike values say as much as one value each."""
    rng = np.random.default_rng(0)
    alone, together = rng.normal(size=1000), np.repeat(rng.normal(size=10), 100)
    assert standard_error(alone) == pytest.approx(1 / np.sqrt(1000), rel=0.7)
    assert standard_error(together) > 3 * together.std() / np.sqrt(1000)
    assert standard_error(alone[: LEAST_JOBS - 1]) == np.inf


def test_the_spread_between_windows_is_that_of_their_means() -> None:
    at_h = np.array([0.1, 0.9, 1.2, 2.1, 3.5, 4.5])
    values = np.array([1.0, 3.0, 4.0, 6.0, 8.0, 10.0])
    assert window_spread(at_h, values, 1.0) == pytest.approx(np.std([2, 4, 6, 8, 10], ddof=1))
    assert window_spread(at_h, values, 2.0) is None
    assert window_spread(np.zeros(0), np.zeros(0), 1.0) is None


def test_queues_that_were_long_for_hours_before_may_be_so_again() -> None:
    """Windows count that are no longer than the ten hours since the change."""
    worse = observed(jct_h=observed().jct_h + 1)
    wide = spread(8.0, avg_jct_h=3.0)
    assert judge(predicted(spreads=[spread(1.0), wide]), worse).state == State.WITHIN
    assert judge(predicted(spreads=[spread(1.0), wide | {"hours": 16.0}]), worse).state == State.WORSE
    unknown = spread(9.0, avg_jct_h=None)
    assert judge(predicted(spreads=[spread(1.0), wide, unknown]), worse).state == State.WITHIN


# -- verdicts ----------------------------------------------------------------------------------------------------


def test_what_was_predicted_is_within_the_band() -> None:
    assert judge(predicted(), observed()).state == State.WITHIN


def test_of_few_jobs_nothing_is_said_but_how_many_there_are() -> None:
    verdict = judge(predicted(), observed(3, jct_h=np.array([90.0, 90, 90])))
    assert (verdict.state, verdict.message) == (State.TOO_FEW, "Too few jobs yet: 3 of 30 have ended.")


def test_longer_completion_times_than_expected_recommend_undo() -> None:
    verdict = judge(predicted(), observed(jct_h=observed().jct_h + 1))
    assert (verdict.state, effect(verdict, "avg_jct_h").state) == (State.WORSE, State.WORSE)
    assert "mean job completion time: 3 h (" in verdict.message
    assert verdict.message.endswith("Undo is recommended.")


def test_the_same_is_within_the_band_of_a_lab_that_was_as_far_off() -> None:
    off = predicted(actual={**BEFORE, "avg_jct_h": 9.0})
    assert judge(off, observed(jct_h=observed().jct_h + 1)).state == State.WITHIN


def test_the_same_is_within_the_band_where_jobs_differ_much() -> None:
    wild = np.random.default_rng(1).exponential(3.0, 100)
    assert judge(predicted(), observed(jct_h=wild, queueing_h=observed().queueing_h)).state == State.WITHIN


def test_shorter_completion_times_are_better() -> None:
    verdict = judge(predicted(), observed(jct_h=observed().jct_h / 2))
    assert (verdict.state, "Undo" in verdict.message) == (State.BETTER, False)


def test_jobs_that_never_start_are_seen_by_their_waits_though_none_has_ended() -> None:
    nobody = np.zeros(0)
    ended = {"jct_h": nobody, "queueing_h": nobody, "restarts": nobody, "came_after": np.zeros(0, dtype=bool)}
    verdict = judge(predicted(), observed(**ended, waits_h=np.full(100, 4.0)))
    assert (verdict.state, effect(verdict, "wait_h").state) == (State.WORSE, State.WORSE)
    assert judge(predicted(), observed(waits_h=np.zeros(100))).state == State.WITHIN


def test_delays_under_a_greater_load_are_not_laid_on_the_policy() -> None:
    verdict = judge(predicted(), observed(jct_h=observed().jct_h + 1, arrivals=300))
    assert (verdict.state, "3 times as many jobs arrive" in verdict.message) == (State.OTHER_LOAD, True)
    assert "Undo" not in verdict.message


def test_idle_gpus_are_worse_unless_fewer_jobs_arrive() -> None:
    assert judge(predicted(), observed(utilization=0.2)).state == State.WORSE
    assert judge(predicted(), observed(utilization=0.2, arrivals=20)).state == State.OTHER_LOAD
    assert judge(predicted(), observed(utilization=0.9)).state == State.BETTER
    assert judge(predicted(spreads=[spread(1.0, utilization=0.2)]), observed(utilization=0.2)).state == State.WITHIN


def test_a_measure_that_the_lab_does_not_know_is_left_out() -> None:
    verdict = judge(predicted(chosen={"avg_jct_h": 2.0}), observed(utilization=0.0))
    assert [effect.measure for effect in verdict.effects] == ["avg_jct_h"]
    assert verdict.state == State.WITHIN
