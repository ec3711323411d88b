"""Suggestions: reproducible from the rows, within the space, and better than chance with results to learn from."""

from itertools import islice
from statistics import median

import pytest

from sweeps.space import Choice, Params, Range, Space, grid_point, grid_size
from sweeps.suggestion import Method, PastTrial, suggest

SPACE: Space = {
    "lr": Range(1e-5, 1e-1, log=True),
    "width": Choice((64, 128, 256)),
    "depth": Range(1, 8, is_integer=True),
    "dropout": Range(0, 0.5, step=0.1),
    "act": Choice(("relu", None, True)),
}


def past(method: Method, space: Space, seed: int, count: int) -> list[PastTrial]:
    """Trials of which the loss is the distance of x from 0.3."""
    trials: list[PastTrial] = []
    for _ in range(count):
        params = suggest(method, space, seed, trials)
        trials.append(PastTrial(params, _loss(params), is_over=True))
    return trials


def _loss(params: Params) -> float:
    x, y = params["x"], params["y"]
    assert isinstance(x, float)
    assert isinstance(y, float)
    return abs(x - 0.3) + abs(y - 0.7)


@pytest.mark.parametrize("method", [Method.RANDOM, Method.BAYES])
def test_the_same_rows_give_the_same_suggestion_within_the_space(method: Method) -> None:
    trials: list[PastTrial] = []
    for number in range(14):
        params = suggest(method, SPACE, 7, trials)
        assert params == suggest(method, SPACE, 7, list(trials))
        assert list(params) == list(SPACE)
        lr, depth = params["lr"], params["depth"]
        assert isinstance(lr, float)
        assert 1e-5 <= lr <= 1e-1
        assert depth in range(1, 9)
        assert params["width"] in (64, 128, 256)
        trials.append(PastTrial(params, score=float(number), at_rungs={10: 1.0}, is_over=True))


def test_another_seed_searches_elsewhere() -> None:
    assert suggest(Method.RANDOM, SPACE, 1, []) != suggest(Method.RANDOM, SPACE, 2, [])


def test_trials_that_run_failed_or_were_stopped_early_are_no_obstacle() -> None:
    params = suggest(Method.RANDOM, SPACE, 1, [])
    done = [PastTrial(params, score=0.1 * n, is_over=True) for n in range(12)]
    kinds = [
        PastTrial(params),
        PastTrial(params, at_rungs={10: 0.4}),
        PastTrial(params, at_rungs={10: 0.4}, is_over=True),
        PastTrial(params, is_over=True),
    ]
    assert suggest(Method.BAYES, SPACE, 1, [*done, *kinds]).keys() == SPACE.keys()


def test_results_guide_the_bayesian_search() -> None:
    space: Space = {"x": Range(0, 1), "y": Range(0, 1)}
    last = {
        method: median(
            trial.score or 0 for seed in range(3) for trial in islice(past(method, space, seed, 40), 30, None)
        )
        for method in (Method.RANDOM, Method.BAYES)
    }
    assert last[Method.BAYES] < 0.75 * last[Method.RANDOM]


def test_good_trials_that_still_run_are_not_taken_for_bad_ones() -> None:
    """Optuna counts running trials as bad ones; a result at a rung says otherwise."""
    space: Space = {"x": Range(0, 1)}
    poor = [PastTrial({"x": n / 40}, at_rungs={10: 1.0}, is_over=True) for n in range(30)]
    excellent = [PastTrial({"x": 0.9 + n / 100}, at_rungs={10: 0.1, 30: 0.05}) for n in range(4)]
    suggested = [suggest(Method.BAYES, space, seed, poor + excellent)["x"] for seed in range(20)]
    assert sum(isinstance(x, float) and abs(x - 0.915) < 0.1 for x in suggested) > 5


def test_a_fine_grid_is_counted_without_being_made() -> None:
    space: Space = {"a": Range(0, 1, step=1e-9), "b": Range(0, 10**9, is_integer=True)}
    assert grid_size(space) > 10**17
    assert grid_point(space, 1) == {"a": 0, "b": 1}


def test_a_grid_has_each_point_once() -> None:
    space: Space = {"a": Choice((1, 2)), "b": Range(1, 3, is_integer=True), "c": Range(0, 1, step=0.5)}
    points = [suggest(Method.GRID, space, 0, [PastTrial({})] * number) for number in range(grid_size(space))]
    assert len({tuple(point.values()) for point in points}) == grid_size(space) == 18
    assert points[0] == {"a": 1, "b": 1, "c": 0.0}
    assert grid_point(space, 1) == {"a": 1, "b": 1, "c": 0.5}


def test_a_range_of_numbers_without_a_step_has_no_grid() -> None:
    with pytest.raises(ValueError, match="no grid"):
        grid_size({"lr": Range(0, 1)})
