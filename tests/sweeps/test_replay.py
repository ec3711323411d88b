"""The replay of rules on learning curves: what each trains, and what it costs."""

import numpy as np
import pytest

from benchmarks.sweeps import EPOCHS, Curve, interval, of_data_set, of_digits, replays


@pytest.fixture
def curves() -> list[Curve]:
    """Of 69 trials, which are better from their first epoch on as their number grows; an epoch takes a second."""
    return [
        Curve([1.0] * EPOCHS, [0.9 - 0.01 * n - 0.001 * epoch for epoch in range(EPOCHS)])
        for n in np.random.default_rng(1).permutation(69)
    ]


def test_each_rule_finds_the_best_and_early_termination_takes_less_time(curves: list[Curve]) -> None:
    runs = replays(of_digits(curves, restart_epochs=2), seed=0, gpus=4)
    assert runs["random"].gpu_s == pytest.approx(69 * EPOCHS)
    assert runs["random"].ended_s == pytest.approx(18 * EPOCHS)
    least = min(min(curve.error) for curve in curves)
    assert runs["promote"].error_at(np.inf) == runs["random"].error_at(np.inf) == least
    assert runs["promote"].gpu_s < runs["stop"].gpu_s < runs["random"].gpu_s / 2
    assert runs["promote"].restarts > 0 == runs["stop"].restarts
    for rule in ("random", "stop", "promote"):
        assert runs[f"{rule}, elastic"].ended_s <= runs[rule].ended_s


def test_a_restart_is_paid_for(curves: list[Curve]) -> None:
    free, dear = (replays(of_digits(curves, epochs), seed=0, gpus=1)["promote"] for epochs in (0, 10))
    assert dear.gpu_s == pytest.approx(free.gpu_s + 10 * free.restarts)


def test_learners_that_begin_anew_pay_for_each_rung_alone() -> None:
    """Nine learners on 16, 48 and 144 examples, which take 1, 3 and 9 seconds."""
    table = of_data_set([{16: (1, 0.9 - n / 100), 48: (3, 0.8 - n / 100), 144: (9, 0.7 - n / 100)} for n in range(9)])
    runs = replays(table, seed=0, gpus=1)
    assert runs["random"].gpu_s == 9 * 9
    assert 9 * 1 + 3 * 3 + 9 <= runs["promote"].gpu_s <= runs["random"].gpu_s / 1.5
    assert runs["promote"].error_at(np.inf) == runs["random"].error_at(np.inf) == table.least


def test_the_interval_of_equal_differences_is_a_point() -> None:
    assert interval([0.5] * 30) == (0.5, 0.5)
