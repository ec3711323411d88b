"""Batches are shared among ranks, their gradient noise is estimated without bias, and learning rates follow it."""

import numpy as np
import pytest

from estimation import goodput
from motley_client.batch_scaling import (
    LEAST_GAIN,
    BatchChoice,
    BatchShare,
    GradientNoise,
    SmoothedNoise,
    batch_choices,
    best_share,
    learning_rate_factor,
    noise_of_parts,
    share_batch,
)
from motley_client.training import TrainingError

DIMENSIONS, BATCH = 100, 64
NOISE = GradientNoise(sqr=4.0, var=2.0)


@pytest.fixture(autouse=True)
def outside_motley(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MOTLEY_BATCH_SIZE", "MOTLEY_MICRO_BATCHES", "MOTLEY_BATCH_CHOICES"):
        monkeypatch.delenv(name, raising=False)


def test_the_batch_of_motley_is_shared_in_its_micro_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    assert share_batch(48, ranks=4) == BatchShare(total=48, micro_batches=1, samples=12)
    monkeypatch.setenv("MOTLEY_BATCH_SIZE", "192")
    monkeypatch.setenv("MOTLEY_MICRO_BATCHES", "2")
    assert share_batch(48, ranks=4) == BatchShare(total=192, micro_batches=2, samples=24)


def test_a_batch_that_cannot_be_shared_is_refused_with_a_remedy() -> None:
    with pytest.raises(
        TrainingError, match=r"5 ranks cannot share a batch of 48 samples equally .*choose a batch_size"
    ):
        share_batch(48, ranks=5)


def test_choices_are_those_that_the_ranks_can_share(monkeypatch: pytest.MonkeyPatch) -> None:
    assert batch_choices(ranks=2) == []
    monkeypatch.setenv("MOTLEY_BATCH_CHOICES", "[[64, 1, 100.0], [66, 2, 110.0], [128, 2, 120.5]]")
    assert batch_choices(ranks=2) == [BatchChoice(64, 1, 100.0), BatchChoice(128, 2, 120.5)]


@pytest.mark.parametrize("seed", range(30))
def test_the_batch_is_the_one_that_rounds_would_choose_or_hardly_worse(seed: int) -> None:
    """`noise` is of batches of the present size here, and of the initial one there."""
    rng = np.random.default_rng(seed)
    sizes = np.unique(8 * rng.integers(1, 64, 12)).tolist()
    told = [(size, 1 + size % 2, size / (0.1 + rng.uniform(0.5, 2) * size / 1000)) for size in sizes]
    present, noise = BatchShare(sizes[0], 1, sizes[0] // 4), GradientNoise(1.0, float(rng.lognormal(0, 2)))
    found = best_share(present, [BatchChoice(*one) for one in told], noise)
    there, initial = [goodput.BatchChoice(size, parts - 1, rate) for size, parts, rate in told], sizes[0]
    of_initial = goodput.GradientNoise(noise.sqr, noise.var)
    best = goodput.best_choice(there, of_initial, initial)
    worth = {
        one.batch: one.samples_per_s * float(goodput.efficiency(of_initial, np.array(one.batch / initial)))
        for one in there
    }
    if worth[best.batch] >= LEAST_GAIN * worth[present.total]:
        assert found == BatchShare(best.batch, best.passes + 1, best.batch // (4 * (best.passes + 1)))
    else:
        assert found == present


def test_without_choices_a_batch_stays_and_one_that_is_none_counts_as_the_nearest() -> None:
    share = BatchShare(50, 1, 50)
    assert best_share(share, [], NOISE) == share
    assert best_share(share, [BatchChoice(48, 1, 9.0), BatchChoice(96, 1, 9.1)], NOISE) == share
    assert best_share(share, [BatchChoice(48, 1, 9.0), BatchChoice(96, 2, 90.0)], NOISE) == BatchShare(96, 2, 48)


@pytest.mark.parametrize("parts", [2, 4, 16])
def test_the_noise_of_a_known_problem_is_found(parts: int) -> None:
    """The gradient of a sample is normal with a mean of squared norm 4 and a covariance of trace 128: 2 over 64."""
    rng, mean = np.random.default_rng(parts), np.full(DIMENSIONS, (NOISE.sqr / DIMENSIONS) ** 0.5)
    deviation, smoothed = (NOISE.var * BATCH / DIMENSIONS) ** 0.5, SmoothedNoise()
    for _ in range(200):
        parts_of_batch = mean + rng.normal(0, deviation, (parts, BATCH // parts, DIMENSIONS)).mean(axis=1)
        whole = parts_of_batch.mean(axis=0)
        smoothed.add(*noise_of_parts((parts_of_batch**2).sum(axis=1).mean(), whole @ whole, parts))
    assert smoothed.value is not None
    assert smoothed.value.sqr == pytest.approx(NOISE.sqr, rel=0.5)
    assert smoothed.value.var == pytest.approx(NOISE.var, rel=0.5)


def test_few_measurements_and_broken_ones_tell_nothing() -> None:
    smoothed = SmoothedNoise()
    for _ in range(4):
        smoothed.add(4.0, 2.0)
    assert smoothed.value is None
    smoothed.add(4.0, 2.0)
    assert smoothed.value == pytest.approx(NOISE)
    smoothed.add(float("nan"), 2.0)
    smoothed.add(4.0, float("inf"))
    assert smoothed.value == pytest.approx(NOISE)


def test_the_noise_outlives_a_checkpoint() -> None:
    smoothed, again = SmoothedNoise(), SmoothedNoise()
    for _ in range(9):
        smoothed.add(4.0, 2.0)
    again.load_state_dict(smoothed.state_dict())
    assert again.value == smoothed.value


@pytest.mark.parametrize(
    ("rule", "noise", "factor"),
    [
        ("linear", None, 4),
        ("sqrt", None, 2),
        ("none", NOISE, 1),
        ("adascale", None, 1),
        ("adascale", GradientNoise(1.0, 0.0), 1),
        ("adascale", GradientNoise(0.0, 1.0), 4),
        ("adascale", GradientNoise(4.0, 2.0), 2),  # (4 * 2 + 4) / (2 + 4)
    ],
)
def test_the_learning_rate_of_a_batch_four_times_as_large(
    rule: str, noise: GradientNoise | None, factor: float
) -> None:
    assert learning_rate_factor(rule, 256, 64, noise) == pytest.approx(factor)


def test_an_unknown_rule_is_refused_with_the_rules() -> None:
    with pytest.raises(TrainingError, match="choose one of adascale, sqrt, linear, none"):
        learning_rate_factor("adam", 2, 1)


def test_a_larger_batch_needs_no_more_examples_than_its_efficiency_says() -> None:
    """Gradient descent on a noisy bowl; the examples to one loss, by AdaScale with the noise as it is measured."""
    small, large = _examples(16, seed=1), _examples(64, seed=2)
    assert large.examples <= 1.1 * small.examples / large.efficiency


class _Examples:
    def __init__(self, examples: float, efficiency: float) -> None:
        self.examples, self.efficiency = examples, efficiency


def _examples(batch: int, *, seed: int, initial: int = 16, parts: int = 4) -> _Examples:
    """Examples until the loss is below 2, mean of 20 runs, and the mean efficiency of the batch on the way."""
    rng, runs, gains, examples = np.random.default_rng(seed), 20, [], 0
    for _ in range(runs):
        weights, smoothed = np.full(20, 2.0), SmoothedNoise(0.8)
        while weights @ weights / 2 > 2:
            of_parts = weights + rng.normal(0, 4, (parts, batch // parts, 20)).mean(axis=1)
            whole = of_parts.mean(axis=0)
            smoothed.add(*noise_of_parts((of_parts**2).sum(axis=1).mean(), whole @ whole, parts))
            gains.append(learning_rate_factor("adascale", batch, initial, smoothed.value))
            weights = weights - 0.02 * gains[-1] * whole
            examples += batch
    return _Examples(examples / runs, float(np.mean(gains)) * initial / batch)
