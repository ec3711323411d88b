"""The replay of rules on learning curves: what each trains, and what it costs."""

import numpy as np
import pytest

from benchmarks.sweeps import EPOCHS, Curve, interval, replays


@pytest.fixture
def curves() -> list[Curve]:
    """Of 69 trials, which are better from their first epoch on as their number grows; an epoch takes a second."""
    return [
        Curve([1.0] * EPOCHS, [0.9 - 0.01 * n - 0.001 * epoch for epoch in range(EPOCHS)])
        for n in np.random.default_rng(1).permutation(69)
    ]


def test_each_rule_finds_the_best_and_early_termination_takes_less_time(curves: list[Curve]) -> None:
    runs = replays(curves, seed=0, gpus=4, restart_epochs=2)
    assert runs["random"].gpu_s == pytest.approx(69 * EPOCHS)
    assert runs["random"].ended_s == pytest.approx(18 * EPOCHS)
    least = min(min(curve.error) for curve in curves)
    assert runs["promote"].error_at(np.inf) == runs["random"].error_at(np.inf) == least
    assert runs["promote"].gpu_s < runs["stop"].gpu_s < runs["random"].gpu_s / 2
    assert runs["promote"].restarts > 0 == runs["stop"].restarts
    for rule in ("random", "stop", "promote"):
        assert runs[f"{rule}, elastic"].ended_s <= runs[rule].ended_s


def test_a_restart_is_paid_for(curves: list[Curve]) -> None:
    free, dear = (replays(curves, seed=0, gpus=1, restart_epochs=epochs)["promote"] for epochs in (0, 10))
    assert dear.gpu_s == pytest.approx(free.gpu_s + 10 * free.restarts)


def test_the_interval_of_equal_differences_is_a_point() -> None:
    assert interval([0.5] * 30) == (0.5, 0.5)
