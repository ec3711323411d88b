"""What is left of a job by the durations of others: ended and running ones, in the nearest pool that tells enough."""

import numpy as np
import pytest

from estimation.duration_curves import LEAST_LONGER, DurationCurves, DurationLeft
from estimation.durations import JobTraits

ADA, BOB = 1, 2
HOUR = 3600.0


def train(name: str = "resnet", *, user: int = ADA, gpus: int = 1, team: int = 0) -> JobTraits:
    return JobTraits(user, name, gpus, team)


def some(traits: JobTraits, *seconds: float) -> list[tuple[JobTraits, float]]:
    return [(traits, one) for one in seconds]


def left_of(curves: DurationCurves, traits: JobTraits, after_s: float = 0.0) -> DurationLeft:
    found = curves.left_of(traits, after_s)
    assert found is not None
    return found


def test_quantiles_are_those_of_the_jobs_that_took_longer() -> None:
    curves = DurationCurves.of(some(train(), *np.arange(1, 21) * HOUR))
    assert left_of(curves, train()).quantile(0.5) == pytest.approx(10 * HOUR)
    assert left_of(curves, train(), 10 * HOUR).quantile(0.5) == pytest.approx(5 * HOUR)
    assert left_of(curves, train(), 10 * HOUR).quantile(1) == pytest.approx(10 * HOUR)


def test_jobs_that_still_run_make_long_ones_more_probable() -> None:
    """Of 400 jobs that began an hour ago half have ended, and 40 % within 48 minutes."""
    took = np.linspace(0, 2 * HOUR, 400)
    ended, runs = took[took < HOUR], np.full((took >= HOUR).sum(), HOUR)
    longer = some(train(), *np.full(LEAST_LONGER, 2 * HOUR))
    without = DurationCurves.of([*some(train(), *ended), *longer])
    known = DurationCurves.of([*some(train(), *ended), *longer], some(train(), *runs))
    assert left_of(without, train()).quantile(0.4) < 0.6 * HOUR
    assert left_of(known, train()).quantile(0.4) == pytest.approx(0.8 * HOUR, rel=0.1)


def test_a_censored_sample_has_the_quantiles_of_the_whole() -> None:
    chance = np.random.default_rng(0)
    took, cut = chance.lognormal(8, 1.5, 4000), chance.uniform(0, 20_000, 4000)
    curves = DurationCurves.of(some(train(), *took[took <= cut]), some(train(), *cut[took > cut]))
    for p in (0.1, 0.5, 0.7):
        assert left_of(curves, train()).quantile(p) == pytest.approx(float(np.quantile(took, p)), rel=0.1)


@pytest.mark.parametrize(
    ("asked", "mean"),
    [
        (train(), HOUR),
        (train("resnet-2"), 3 * HOUR),
        (train(user=BOB), HOUR),
        (train("new", user=BOB, gpus=8), 9 * HOUR),
        (train("new", user=ADA, gpus=4), 2 * HOUR),
        (train("resnet", user=3, team=2, gpus=2), HOUR),
    ],
)
def test_the_pool_is_the_nearest_in_which_enough_took_longer(asked: JobTraits, mean: float) -> None:
    times = [HOUR] * 60
    curves = DurationCurves.of(
        [
            *some(train(), *times),
            *some(train("resnet-1"), *(3 * one for one in times[:20])),
            *some(train("other", gpus=4), *(2 * one for one in times[:20])),
            *some(train("big", user=3, gpus=8), *(9 * one for one in times[:20])),
            *some(train("few", user=BOB), HOUR / 2),
        ]
    )
    assert left_of(curves, asked).quantile(0.5) == pytest.approx(mean)


def test_where_too_few_took_longer_a_wider_pool_answers_or_none() -> None:
    curves = DurationCurves.of(
        [*some(train(), *[HOUR] * 50), *some(train("long", gpus=2), *[10 * HOUR] * LEAST_LONGER)]
    )
    assert left_of(curves, train(), 2 * HOUR).quantile(0.5) == pytest.approx(8 * HOUR)
    assert curves.left_of(train(), 20 * HOUR) is None
    assert DurationCurves.of([]).left_of(train(), 0.0) is None


def test_names_that_differ_in_numbers_alone_are_one_and_those_of_another_team_are_not_compared() -> None:
    curves = DurationCurves.of(
        [
            *(one for n in range(LEAST_LONGER) for one in some(train(f"sweep-{n}"), HOUR)),
            *some(train("secret", team=2, user=3), *[9 * HOUR] * 3 * LEAST_LONGER),
        ]
    )
    assert left_of(curves, train("sweep-99")).quantile(0.5) == pytest.approx(HOUR)
    mine, unnamed = (left_of(curves, train(name, user=5, team=1)) for name in ("secret", "anything"))
    assert mine.quantile(0.5) == unnamed.quantile(0.5), "all jobs of one GPU, whatever their names"
