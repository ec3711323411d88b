"""The throughput model: as recorded from the original, its slope right, and what timings do not tell held fixed."""

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import approx_fprime

from estimation import throughput_model
from estimation.goodput import BatchLimits, GradientNoise, best_batches
from estimation.throughput_model import NOTHING, ThroughputModel, Timings, fit, loss
from tests.estimation.recorded_applications import needs_reference, recorded_values

TRUE = ThroughputModel(0.05, 0.002, 0.04, 0.003, 0.01, 0.002, 1.6)


def timings_of(recorded: dict[str, Any]) -> Timings:
    step, averaging = np.array(recorded["step_time"]), np.array(recorded["sync_time"])
    return Timings(
        nodes=np.array(recorded["num_nodes"]),
        gpus=np.array(recorded["num_replicas"]),
        local_batch=np.array(recorded["local_bsz"], dtype=float),
        step_s=step,
        compute_s=step - averaging,
        passes=np.zeros(len(step), dtype=np.int64),
    )


def timed(*places: tuple[int, int, int]) -> Timings:
    """Whole steps of the true model, at (nodes, GPUs, samples per GPU)."""
    nodes, gpus, batch = zip(*places, strict=True)
    steps = TRUE.step_seconds(np.array(nodes), np.array(gpus), np.array(batch)).tolist()
    return Timings.of_steps(nodes, gpus, batch, steps)


CONVERGED = 1e-3
"""Of the loss. Ours is above the original's by 5e-4 at most: `fit` rounds off the kink where a fit is exact."""


def error(model: ThroughputModel, timings: Timings) -> float:
    """The root of the mean square of the logarithm of predicted over timed steps."""
    predicted = model.step_seconds(timings.nodes, timings.gpus, timings.local_batch, timings.passes)
    return float(np.sqrt((np.log(predicted / timings.step_s) ** 2).mean()))


# -- against the original ----------------------------------------------------------------------------------------


@needs_reference
@pytest.mark.parametrize(
    "recorded", recorded_values("fit"), ids=lambda r: f"{r['app']}-{r['gpu']}-{len(r['step_time'])}"
)
def test_a_fit_is_as_good_as_the_originals_and_predicts_the_same_where_that_is_converged(recorded):
    """The original stops where its loss changes by less than 1e-5, of these sixty at up to 0.13 above the minimum.

    Predictions differ by up to 31 % there, and ours have to be nearer to the timed steps.
    """
    timings = timings_of(recorded)
    model, original = fit(timings), ThroughputModel(**recorded["params"])
    above = recorded["objective"] - loss(model, timings)
    assert above >= -CONVERGED
    if above <= CONVERGED:
        timed_at = (timings.nodes, timings.gpus, timings.local_batch)
        assert_allclose(model.throughput(*timed_at), original.throughput(*timed_at), rtol=0.02)
    else:
        assert error(model, timings) <= 1.01 * error(original, timings)


@needs_reference
@pytest.mark.parametrize(
    "recorded", recorded_values("fit"), ids=lambda r: f"{r['app']}-{r['gpu']}-{len(r['step_time'])}"
)
def test_the_loss_is_the_originals(recorded):
    original = ThroughputModel(**recorded["params"])
    assert loss(original, timings_of(recorded)) == pytest.approx(recorded["objective"], rel=1e-6)


# -- by hand -----------------------------------------------------------------------------------------------------


def test_a_step_on_one_gpu_takes_what_computing_takes():
    assert TRUE.step_seconds(1, 1, 10) == pytest.approx(0.05 + 0.002 * 10)


def test_without_overlap_averaging_is_added():
    model = TRUE._replace(gamma=1.0)
    assert model.step_seconds(1, 4, 10) == pytest.approx(0.07 + 0.01 + 0.002 * 2)
    assert model.step_seconds(2, 4, 10) == pytest.approx(0.07 + 0.04 + 0.003 * 2)


def test_a_further_pass_takes_its_computing_and_brings_its_samples():
    once, twice = (TRUE.step_seconds(1, 4, 10, passes) for passes in (0, 1))
    assert twice - once == pytest.approx(0.07)
    assert TRUE.throughput(1, 4, 10, 1) == pytest.approx(80 / twice)


@pytest.mark.parametrize("smoothing", [0.0, 1e-2])
def test_the_slope_and_the_curvature_are_those_of_the_loss(smoothing):
    timings = timed((1, 1, 32), (1, 2, 16), (1, 4, 8), (2, 8, 32), (4, 16, 8))
    steps = Timings.of_steps(
        timings.nodes.tolist(),
        timings.gpus.tolist(),
        timings.local_batch.tolist(),
        timings.step_s.tolist(),
        [1, 0, 2, 0, 1],
    )
    seen, theta = throughput_model._Logarithms.of(steps), np.array([0.1, 0.01, 0.05, 0.002, 0.03, 0.001, 1.7])
    slope, curvature = throughput_model._loss(theta, seen, smoothing)[1]()
    found = approx_fprime(theta, lambda x: throughput_model._loss(x, seen, smoothing)[0], 1e-8)
    assert_allclose(slope, found, rtol=1e-4, atol=1e-6)
    found = approx_fprime(theta, lambda x: throughput_model._loss(x, seen, smoothing)[1]()[0], 1e-8)
    assert_allclose(curvature, found, rtol=1e-4, atol=1e-5 * np.abs(curvature).max())


# -- the same on every processor ---------------------------------------------------------------------------------

NOISY = timed((1, 1, 32), (1, 1, 64), (1, 2, 48), (1, 4, 32), (1, 8, 16), (2, 8, 20), (2, 16, 32), (4, 32, 16))
ERRORS = np.exp(0.1 * np.sin(np.arange(8.0) ** 2))
LIMITS = BatchLimits(initial=128, most=4096, most_per_gpu=256, least_per_gpu=16)
NODES, GPUS = np.array([1, 1, 1, 1, 2, 4]), np.array([1, 2, 4, 8, 16, 32])


def disturbed(timings: Timings, rng: np.random.Generator, by: float = 1e-13) -> Timings:
    """The same in another order, and each time as another processor may round it."""
    order, error = rng.permutation(len(timings.gpus)), 1 + by * rng.standard_normal((2, len(timings.gpus)))
    return Timings(
        timings.nodes[order],
        timings.gpus[order],
        timings.local_batch[order],
        (timings.step_s * error[0])[order],
        (timings.compute_s * error[1])[order],
        timings.passes[order],
    )


def first_timings(many: int) -> Timings:
    """So many steps, each with an error of some percent."""
    columns = (NOISY.nodes, NOISY.gpus, NOISY.local_batch, NOISY.step_s * ERRORS)
    return Timings.of_steps(*(column[:many].tolist() for column in columns))


def assert_hangs_on_no_rounding(timings: Timings) -> None:
    """Fits to the same timings, disturbed in the last bits, predict the same times and choose the same batches."""
    model, rng = fit(timings), np.random.default_rng(0)
    for other in [fit(disturbed(timings, rng)) for _ in range(5)]:
        assert_allclose(other.step_seconds(NODES, GPUS, 40), model.step_seconds(NODES, GPUS, 40), rtol=1e-8)
        for noise in (GradientNoise(1.0, 1.0), GradientNoise(1.0, 30.0), GradientNoise(1.0, 1000.0)):
            ours, theirs = (
                best_batches(m.throughput, LIMITS, noise, nodes=NODES, gpus=GPUS).total(GPUS) for m in (model, other)
            )
            assert ours.tolist() == theirs.tolist()


@pytest.mark.parametrize("many", range(1, 9))
def test_neither_times_nor_batches_hang_on_the_last_bits(many):
    assert_hangs_on_no_rounding(first_timings(many))


@needs_reference
@pytest.mark.parametrize(
    "recorded", recorded_values("fit"), ids=lambda r: f"{r['app']}-{r['gpu']}-{len(r['step_time'])}"
)
def test_recorded_steps_too_are_fitted_alike_whatever_the_last_bits(recorded):
    assert_hangs_on_no_rounding(timings_of(recorded))


def test_what_was_timed_is_found_again_though_only_whole_steps_were():
    timings = timed((1, 1, 32), (1, 1, 64), (1, 2, 32), (1, 4, 32), (1, 8, 16), (2, 16, 32), (4, 32, 16))
    found = fit(timings).step_seconds(timings.nodes, timings.gpus, timings.local_batch)
    assert_allclose(found, timings.step_s, rtol=0.1)


def test_from_one_gpu_alone_no_time_is_lost_to_averaging():
    model = fit(timed((1, 1, 32), (1, 1, 64)))
    assert model.throughput(1, 8, 32) == pytest.approx(8 * model.throughput(1, 1, 32), rel=1e-3)


def test_of_one_batch_half_a_step_is_taken_not_to_depend_on_it():
    timings = timed((1, 1, 32))
    assert fit(timings).alpha_c == pytest.approx(timings.step_s[0] / 2)


@pytest.mark.parametrize(
    "places",
    [
        [(1, 2, 64), (1, 4, 32), (1, 8, 32)],
        [(1, 4, 16), (1, 8, 32)],
        [(1, 4, 64), (1, 8, 16)],
        [(2, 8, 64), (3, 12, 32)],
    ],
)
def test_steps_of_several_gpus_alone_are_not_all_averaging(places):
    """Else a step on one GPU takes no time, and rounds see a rate of a million there."""
    model = fit(timed(*places))
    alone, true = float(model.step_seconds(1, 1, 64)), float(TRUE.step_seconds(1, 1, 64))
    assert true / 3 < alone < 3 * true


def test_nodes_that_were_never_spanned_are_taken_to_cost_more_than_one():
    model = fit(timed((1, 1, 32), (1, 2, 32), (1, 4, 32)))
    assert model.alpha_r > NOTHING
    assert model.alpha_n >= 1.1 * model.alpha_r
    assert model.throughput(2, 4, 32) < model.throughput(1, 4, 32)
