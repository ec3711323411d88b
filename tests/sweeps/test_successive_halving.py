"""Successive halving: who goes on at a rung, who rests, who has no chance left."""

from itertools import pairwise
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweeps.successive_halving import FAILED, Halving, Standing, decide, halving
from tests.hypothesis_examples import examples


@pytest.mark.parametrize(
    ("least", "most", "eta", "trials", "rungs"),
    [
        (500, 20_000, 3, 100, (741, 2222, 6667, 20_000)),
        (1, 9, 3, 9, (1, 3, 9)),
        (1, 9, 3, 3, (3, 9)),  # one of three trials reaches the last rung
        (1, 9, 3, 2, (9,)),
        (9, 9, 3, 100, (9,)),
        (4, 9, 3, 100, (9,)),  # 3 steps would be fewer than the least
    ],
)
def test_rungs_leave_a_trial_for_the_last_one(
    least: int, most: int, eta: int, trials: int, rungs: tuple[int, ...]
) -> None:
    assert halving(least, most, eta, trials).rungs == rungs


RULE = Halving((1, 3, 9), 3)


def test_of_three_at_a_rung_the_best_goes_on() -> None:
    trials = [Standing(number, (score,)) for number, score in enumerate((0.3, 0.1, 0.2))]
    assert decide(trials, RULE, 9) == ([1], [])


def test_the_first_ones_wait_for_others() -> None:
    assert decide([Standing(0, (0.1,)), Standing(1, (0.2,))], RULE, 9) == ([], [])


def test_what_rests_is_promoted_once_later_results_make_it_one_of_the_best() -> None:
    trials = [Standing(0, (0.1,)), Standing(1, (0.2,)), Standing(2, (FAILED,), is_over=True)]
    assert decide(trials, RULE, 9).promoted == [0]


def test_of_equal_trials_the_earlier_goes_on() -> None:
    assert decide([Standing(number, (0.5,)) for number in (2, 0, 1)], RULE, 9).promoted == [0]


def test_what_is_too_far_behind_is_stopped() -> None:
    trials = [Standing(number, (float(number),)) for number in range(8)]
    assert decide(trials, RULE, 9).stopped == [6, 7], (
        "of nine trials three go on, and three are kept for their failures"
    )
    assert decide(trials, RULE, 18).stopped == []


def test_a_trial_that_fails_after_its_rung_leaves_its_place_to_the_next() -> None:
    failed = Standing(0, (0.1, FAILED), target=1, is_over=True)
    assert decide([failed, Standing(1, (0.2,)), Standing(2, (0.3,))], RULE, 3) == ([1], [])


def test_a_trial_that_ends_by_itself_where_it_rests_leaves_its_place_to_the_next() -> None:
    """As one whose job exits with 0 when it is held."""
    trials = [Standing(number, (number / 10,), is_over=number < 2) for number in range(4)]
    assert decide(trials, RULE, 9) == ([2], [])


def test_the_last_rung_stops_and_promotes_nothing() -> None:
    trials = [Standing(number, (0.1, 0.1, float(number)), target=2) for number in range(9)]
    assert decide(trials, RULE, 9) == ([], [])


scores = st.lists(st.one_of(st.floats(-5, 5), st.just(inf)), min_size=1, max_size=60)


@given(scores, st.integers(2, 4))
@examples(200)
def test_a_whole_search_promotes_one_in_eta_and_the_best_to_the_end(finals: list[float], eta: int) -> None:
    """Trials report one after the other; each has the same score at each rung."""
    rule = halving(1, eta**3, eta, len(finals))
    trials: dict[int, Standing] = {}
    stopped: set[int] = set()
    for number, score in enumerate(finals):
        trials[number] = Standing(number, (score,))
        _settle(trials, stopped, rule, len(finals), finals)
    reached = [sum(len(one.scores) > rung for one in trials.values()) for rung in range(len(rule.rungs))]
    for rung, (below, above) in enumerate(pairwise(reached)):
        assert min(below // eta, len(finals) // eta ** (rung + 1)) <= above <= below
    best = min(finals)
    assert any(finals[n] == best for n, one in trials.items() if len(one.scores) == len(rule.rungs))


def _settle(trials: dict[int, Standing], stopped: set[int], rule: Halving, expected: int, finals: list[float]) -> None:
    while (decision := decide(list(trials.values()), rule, expected)) and (decision.promoted or decision.stopped):
        for number in decision.promoted:
            assert number not in stopped
            one = trials[number]
            trials[number] = Standing(number, (*one.scores, finals[number]), one.target + 1)
        for number in decision.stopped:
            stopped.add(number)
            trials[number] = Standing(number, trials[number].scores, trials[number].target, is_over=True)
