"""Population-based training: who is replaced by a copy of whom, and with which hyperparameters."""

import numpy as np
import pytest

from sweeps.population import Member, Replacement, explored, marks, most_trials, replacements
from sweeps.space import Choice, Params, Range, Space
from sweeps.successive_halving import FAILED

SPACE: Space = {
    "lr": Range(1e-5, 1e-1, log=True),
    "depth": Range(1, 8, is_integer=True),
    "dropout": Range(0, 0.5, step=0.1),
    "act": Choice(("relu", "tanh")),
    "fixed": Choice((3,)),
}
PARAMS: Params = {"lr": 0.01, "depth": 4, "dropout": 0.2, "act": "relu", "fixed": 3}


def members(*scores: float) -> list[Member]:
    return [Member(number, score, {**PARAMS, "lr": 0.001 * (number + 1)}) for number, score in enumerate(scores)]


def decided(of: list[Member], *, seed: int = 1, generation: int = 0, kept: tuple[str, ...] = ()) -> list[Replacement]:
    return replacements(of, SPACE, kept, seed, generation)


def test_members_of_the_lowest_quarter_are_replaced_by_ones_of_the_best() -> None:
    found = decided(members(0.8, 0.1, 0.7, 0.2, 0.6, 0.3, 0.5, 0.4))
    assert [one.replaced for one in found] == [0, 2]
    assert {one.source for one in found} <= {1, 3}
    sources = {one.source for seed in range(20) for one in decided(members(*range(8)), seed=seed)}
    assert sources == {0, 1}, "at random"


def test_the_same_members_and_seed_give_the_same_answer() -> None:
    of = members(*range(8))
    assert decided(of) == decided(list(reversed(of)))
    assert decided(of) != decided(of, seed=2)
    assert decided(of) != decided(of, generation=1)


@pytest.mark.parametrize(
    ("of", "replaced"),
    [
        (members(0.2, 0.1), [0]),
        (members(0.2, 0.1, 0.3), [2]),
        (members(0.2), []),
        (members(0.2, 0.2, 0.2, 0.2), []),
        (members(0.1, FAILED, 0.2, 0.3), [1]),
        (members(FAILED, FAILED, FAILED, FAILED), []),
        ([*members(0.2, 0.3, 0.4), Member(3, 0.1, PARAMS, can_give=False)], [2]),
        ([Member(n, n / 10, PARAMS, can_give=n == 3) for n in range(4)], []),
        ([*members(0.1, 0.2, 0.3), Member(3, 0.9, PARAMS, can_end=False)], []),
    ],
)
def test_only_weights_that_are_there_and_better_replace_others(of: list[Member], replaced: list[int]) -> None:
    assert [one.replaced for one in decided(of)] == replaced


def test_numbers_change_a_little_and_choices_are_drawn_anew() -> None:
    found = [explored(PARAMS, SPACE, (), np.random.default_rng(seed)) for seed in range(200)]
    rates = [one["lr"] for one in found if one["lr"] in (0.008, 0.012)]
    assert 120 < len(rates) < 180, "three quarters of them"
    assert {one["depth"] for one in found} == set(range(1, 9))
    assert {one["act"] for one in found} == {"relu", "tanh"}
    assert {one["fixed"] for one in found} == {3}
    for one in found:
        assert one["dropout"] in [pytest.approx(0.1 * n) for n in range(6)]
        assert isinstance(one["lr"], float)
        assert 1e-5 <= one["lr"] <= 1e-1


@pytest.mark.parametrize("value", [1, 8])
def test_whole_numbers_move_by_one_at_least_and_stay_within(value: int) -> None:
    draws = [explored(PARAMS | {"depth": value}, SPACE, (), np.random.default_rng(seed))["depth"] for seed in range(99)]
    assert {1: 2, 8: 6}[value] in draws
    assert all(isinstance(one, int) and 1 <= one <= 8 for one in draws)


def test_what_is_kept_stays_with_the_weights() -> None:
    for seed in range(20):
        assert explored(PARAMS, SPACE, tuple(SPACE), np.random.default_rng(seed)) == PARAMS
        assert explored(PARAMS, SPACE, ("act", "depth"), np.random.default_rng(seed)).items() >= {("act", "relu")}


def test_members_are_compared_at_each_interval_before_the_end() -> None:
    assert marks(500, 2000) == (500, 1000, 1500)
    assert marks(500, 2001) == (500, 1000, 1500, 2000)
    assert most_trials(8, 500, 2000) == 8 + 3 * 2
