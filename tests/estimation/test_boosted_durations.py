"""Durations by gradient boosting: what the model learns from, where it is used, and what it says."""

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from estimation.accuracy import Accuracy
from estimation.boosted_durations import (
    FEWEST_JOBS,
    BoostedDurations,
    Comparison,
    DurationEstimator,
    ModelCard,
    fit_durations,
    log_normal,
)
from estimation.duration_features import EndedSubmission, FeatureHistory, Submission, observations
from estimation.durations import Basis, JobTraits
from estimation.scaling import Source

NOON = datetime(2026, 11, 2, 12, tzinfo=UTC)
HOUR = 3600.0


def ended(
    number: int, seconds: float, *, name: str = "train", user: int = 1, limit_s: float | None = None
) -> EndedSubmission:
    """The n-th job: one comes every two hours."""
    at = NOON + timedelta(hours=2 * number)
    return EndedSubmission(
        Submission(JobTraits(user, name, 1), at, time_limit_s=limit_s), at + timedelta(seconds=seconds), seconds
    )


def jobs_by_limit(n: int) -> list[EndedSubmission]:
    """Jobs of one name that use half of their limit, 10 minutes or 10 hours, more or less."""
    rng = np.random.default_rng(0)
    limits = rng.choice([600.0, 10 * HOUR], size=n)
    return [ended(i, limit / 2 * rng.lognormal(0, 0.2), limit_s=limit) for i, limit in enumerate(limits)]


@pytest.fixture(scope="module")
def fitted() -> tuple[BoostedDurations, ModelCard]:
    found = fit_durations(jobs_by_limit(400))
    assert found is not None
    return found


def estimator(model: BoostedDurations | None) -> DurationEstimator:
    history = FeatureHistory.of((job.submission, job.seconds) for job in jobs_by_limit(400))
    return DurationEstimator(history, model)


# -- what it learns from -----------------------------------------------------------------------------------------


def test_a_job_is_described_by_jobs_that_had_ended_when_it_was_submitted() -> None:
    jobs = [ended(0, HOUR), ended(1, 100 * HOUR), ended(2, 3 * HOUR)]
    changed = [jobs[0], ended(1, 200 * HOUR), jobs[2]]
    assert [one.features for one in observations(jobs)] == [one.features for one in observations(changed)]
    sooner = [jobs[0], ended(1, 1.0), jobs[2]]
    assert [one.features for one in observations(jobs)] != [one.features for one in observations(sooner)]


def test_the_first_job_has_nothing_behind_it_and_is_left_out() -> None:
    assert [one.job for one in observations([ended(0, HOUR), ended(1, HOUR)])] == [ended(1, HOUR)]


def test_the_order_in_which_jobs_are_given_does_not_matter() -> None:
    jobs = jobs_by_limit(20)
    assert list(observations(reversed(jobs))) == list(observations(jobs))


def test_an_owner_without_jobs_has_the_encoding_of_all() -> None:
    history = FeatureHistory.of([(ended(0, HOUR, user=1).submission, HOUR)])
    new, known = (history.features(ended(1, HOUR, user=user, name="other").submission) for user in (2, 1))
    assert new is not None
    assert known is not None
    assert new[4:8] == pytest.approx([np.log(HOUR)] * 4)


def test_of_few_jobs_nothing_is_fitted() -> None:
    assert fit_durations([ended(i, HOUR) for i in range(FEWEST_JOBS)]) is None


# -- where it is used --------------------------------------------------------------------------------------------


def test_a_model_that_knows_the_limits_is_used_in_place_of_a_mean_that_does_not(
    fitted: tuple[BoostedDurations, ModelCard],
) -> None:
    model, card = fitted
    of_all, similar = card.comparisons
    assert (of_all.basis, similar.basis) == (None, Basis.SIMILAR)
    assert of_all.boosted.n == of_all.rolling.n == (card.jobs // 10)
    assert similar.boosted.factor < 1.5 < similar.rolling.factor
    assert model.used_for == {Basis.SIMILAR}


@pytest.mark.parametrize(
    ("n", "boosted", "rolling", "used"), [(30, 1.5, 2.0, True), (29, 1.5, 2.0, False), (30, 2.0, 1.5, False)]
)
def test_it_is_used_where_it_was_better_on_enough_jobs(n: int, boosted: float, rolling: float, used: bool) -> None:
    compared = Comparison(Basis.USER, Accuracy(n, 1.0, rolling, 0.5), Accuracy(n, 1.0, boosted, 0.5))
    assert ModelCard(1000, (compared,)).used_for == ({Basis.USER} if used else frozenset())


def test_all_jobs_together_are_no_pool() -> None:
    compared = Comparison(None, Accuracy(100, 1.0, 2.0, 0.5), Accuracy(100, 1.0, 1.5, 0.5))
    assert ModelCard(1000, (compared,)).used_for == frozenset()


# -- what it says ------------------------------------------------------------------------------------------------


def test_jobs_of_one_name_are_told_apart_by_their_limits(fitted: tuple[BoostedDurations, ModelCard]) -> None:
    asked = [ended(400, 0, limit_s=limit).submission for limit in (600.0, 10 * HOUR, 600.0)]
    short, long, same = estimator(fitted[0]).estimates(asked)
    assert short is not None
    assert long is not None
    assert short.estimate.median == pytest.approx(300, rel=0.5)
    assert long.estimate.median == pytest.approx(5 * HOUR, rel=0.5)
    assert (short, short.basis, short.estimate.source) == (same, Basis.BOOSTED, Source.FITTED)
    assert short.estimate.n == fitted[1].jobs


def test_without_a_model_or_in_place_of_no_pool_the_estimate_is_the_rolling_one(
    fitted: tuple[BoostedDurations, ModelCard],
) -> None:
    asked = ended(400, 0, limit_s=600.0).submission
    unused = BoostedDurations(fitted[0].trees, 400, frozenset({Basis.ALL}))
    found = [estimator(model).estimate(asked) for model in (None, unused)]
    assert found[0] == found[1] == estimator(None).history.rolling.estimate(asked.traits)


def test_before_any_job_has_ended_nothing_is_said(fitted: tuple[BoostedDurations, ModelCard]) -> None:
    assert DurationEstimator(FeatureHistory(), fitted[0]).estimates([ended(0, 0).submission]) == [None]
    assert DurationEstimator(FeatureHistory(), fitted[0]).estimates([]) == []


def test_beyond_a_number_of_different_jobs_the_estimate_is_the_rolling_one(
    fitted: tuple[BoostedDurations, ModelCard], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("estimation.boosted_durations.MOST_DISTINCT", 1)
    asked = [ended(400, 0, limit_s=limit).submission for limit in (600.0, 600.0, 10 * HOUR)]
    found = estimator(fitted[0]).estimates(asked)
    assert [one and one.basis for one in found] == [Basis.BOOSTED, Basis.BOOSTED, Basis.SIMILAR]


def test_quartiles_make_a_log_normal_distribution_even_if_they_cross() -> None:
    mean, spread = log_normal(np.array([[1.0, 0.0, -1.0], [5.0, 5.0, 5.0]]))
    assert spread == pytest.approx([2 / 1.349, 0.1], rel=1e-3)
    assert mean[0] == pytest.approx(np.exp(spread[0] ** 2 / 2))
