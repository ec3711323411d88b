"""Durations from jobs that ended before: whose, which, and how far they can be relied on."""

import pytest

from estimation.durations import DECAY, MOST_NAMES, Basis, DurationHistory, JobTraits
from estimation.scaling import Source

ADA, BOB = 1, 2
HOUR = 3600.0


def train(name: str = "resnet-lr-0.1", *, user: int = ADA, gpus: int = 1) -> JobTraits:
    return JobTraits(user, name, gpus)


def test_before_any_job_has_ended_there_is_no_estimate() -> None:
    assert DurationHistory().estimate(train()) is None


def test_the_newest_of_the_jobs_with_that_name_counts_most() -> None:
    found = DurationHistory.of([(train(), 100), (train(), 200)]).estimate(train())
    assert found is not None
    assert found.estimate.mean == pytest.approx((200 + DECAY * 100) / (1 + DECAY))
    assert (found.basis, found.estimate.n, found.estimate.source) == (Basis.SIMILAR, 2, Source.SIMILAR)


@pytest.mark.parametrize(
    ("asked", "basis", "mean"),
    [
        (train("resnet-lr-0.3"), Basis.SIMILAR, HOUR),
        (train("resnet-lr-0.3", gpus=4), Basis.SIMILAR, 4 * HOUR),
        (train("resnet-lr-0.3", gpus=8), Basis.SIMILAR, 2.5 * HOUR),
        (train("bert-large"), Basis.SIMILAR_OF_TEAM, 9 * HOUR),
        (train("zzz"), Basis.USER, HOUR),
        (train("zzz", user=3), Basis.ALL, 5 * HOUR),
    ],
)
def test_the_pool_is_the_nearest_that_has_jobs(asked: JobTraits, basis: Basis, mean: float) -> None:
    ended = [
        (train(), HOUR),
        (train(gpus=4), 4 * HOUR),
        (train("bert-base", user=BOB), 9 * HOUR),
    ]
    found = DurationHistory.of(ended).estimate(asked)
    assert found is not None
    assert (found.basis, found.estimate.mean) == (basis, pytest.approx(mean))


def test_names_of_another_teams_jobs_are_not_compared() -> None:
    """A person could find out what others work on, and how long it took, by trying names."""
    theirs = JobTraits(BOB, "secret-merger-model", 1, team=2)
    asked = JobTraits(ADA, "secret-merger", 1, team=1)
    found = DurationHistory.of([(theirs, 9 * HOUR)]).estimate(asked)
    assert found is not None
    assert found.basis == Basis.ALL


def test_names_that_differ_in_numbers_alone_are_one() -> None:
    history = DurationHistory.of([(train(f"sweep-{n}-3f9a12cc{n:04x}"), HOUR) for n in range(4)])
    found = history.estimate(train("sweep-99-77aa01bd0000"))
    assert found is not None
    assert (found.basis, found.estimate.n) == (Basis.SIMILAR, 4)


def test_jobs_that_agree_are_relied_on_more_than_one_job_and_than_jobs_that_do_not() -> None:
    def spread(*seconds: float) -> float:
        found = DurationHistory.of((train(), s) for s in seconds).estimate(train())
        assert found is not None
        return found.estimate.spread

    assert spread(*[HOUR] * 20) < spread(HOUR) < spread(60, HOUR, 100 * HOUR)


def test_a_job_that_ended_at_once_counts_as_a_second() -> None:
    found = DurationHistory.of([(train(), 0.0)]).estimate(train())
    assert found is not None
    assert found.estimate.mean == 1


def test_names_used_longest_ago_are_forgotten() -> None:
    history = DurationHistory.of([(train("old-name"), HOUR)])
    for number in range(MOST_NAMES):
        history.add(train(f"{number:040b}".replace("0", "x").replace("1", "y")), 60)
    found = history.estimate(train("old-name"))
    assert found is not None
    assert found.basis == Basis.USER


def test_a_new_end_changes_the_estimate_that_was_given_before() -> None:
    history = DurationHistory.of([(train(), HOUR)])
    before = history.estimate(train())
    history.add(train(), 3 * HOUR)
    after = history.estimate(train())
    assert before is not None
    assert after is not None
    assert after.estimate.mean > before.estimate.mean
