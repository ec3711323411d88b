"""Goodput: as recorded from the original; a larger batch is worth what the noise of the gradient makes it worth."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from estimation.goodput import (
    NO_NOISE,
    BatchLimits,
    GradientNoise,
    batch_choices,
    best_batches,
    best_choice,
    efficiency,
    gain,
)
from estimation.throughput_model import ThroughputModel
from tests.estimation.recorded_applications import PROFILES, needs_reference, recorded_values

MODEL = ThroughputModel(0.05, 0.002, 0.04, 0.003, 0.01, 0.002, 1.6)
LIMITS = BatchLimits(initial=128, most=4096, most_per_gpu=256, least_per_gpu=16)
NODES, GPUS = np.array([1, 1, 1, 1, 2]), np.array([1, 2, 4, 8, 16])
NOISY = GradientNoise(1.0, 1000.0)


# -- against the original ----------------------------------------------------------------------------------------


@needs_reference
@pytest.mark.parametrize(
    "recorded",
    recorded_values("goodput_optimize"),
    ids=lambda r: f"{r['app']}-{r['gpu']}-{r['fit_points']}-{r['epoch']}",
)
def test_the_batch_and_its_goodput_are_the_originals(recorded):
    fits = {(r["gpu"], r["app"], len(r["step_time"])): r["params"] for r in recorded_values("fit")}
    model = ThroughputModel(**fits[recorded["gpu"], recorded["app"], recorded["fit_points"]])
    limits, noise = (
        PROFILES.application(recorded["app"]).limits(recorded["gpu"]),
        GradientNoise(recorded["grad_sqr"], recorded["grad_var"]),
    )
    assert (limits.most, [limits.least_per_gpu, limits.most_per_gpu]) == (
        recorded["max_batch_size"],
        recorded["atomic_range"],
    )
    nodes, gpus = np.array(recorded["configs"]).T
    found = best_batches(model.throughput, limits, noise, nodes=nodes, gpus=gpus)
    assert_allclose(found.goodput, recorded["goodput"], rtol=1e-9)
    assert_array_equal(found.local, recorded["atomic_bsz"])
    assert_array_equal(found.passes, recorded["accum_steps"])


# -- by hand -----------------------------------------------------------------------------------------------------


def test_without_noise_a_larger_batch_gains_nothing():
    assert gain(NO_NOISE, np.array([1.0, 4.0])).tolist() == [1, 1]
    assert efficiency(NO_NOISE, np.array([1.0, 4.0])).tolist() == [1, 0.25]


def test_where_all_is_noise_a_sample_is_worth_the_same_in_every_batch():
    assert efficiency(GradientNoise(0.0, 5.0), np.array([1.0, 4.0, 32.0])) == pytest.approx(1)


def test_a_gradient_of_nothing_gains_nothing():
    assert gain(GradientNoise(0.0, 0.0), np.array([2.0])).tolist() == [1]


def test_without_noise_the_initial_batch_stays_as_long_as_the_gpus_can_share_it():
    found = best_batches(MODEL.throughput, LIMITS, NO_NOISE, nodes=NODES, gpus=GPUS)
    assert found.total(GPUS).tolist() == [128, 128, 128, 128, 256]  # 16 GPUs take 16 samples each at the least


def test_the_noisier_the_gradient_the_larger_the_batch():
    calm, noisy = (
        best_batches(MODEL.throughput, LIMITS, noise, nodes=NODES, gpus=GPUS)
        for noise in (GradientNoise(1.0, 1.0), NOISY)
    )
    assert (noisy.total(GPUS) > calm.total(GPUS)).all()


def test_what_does_not_fit_at_once_is_done_in_several_passes():
    found = best_batches(MODEL.throughput, LIMITS, NOISY, nodes=NODES[:1], gpus=GPUS[:1])
    assert found.passes[0] >= 1
    assert found.local[0] <= LIMITS.most_per_gpu


@pytest.mark.parametrize("noise", [NOISY, GradientNoise(1.0, 10.0), NO_NOISE])
def test_the_choices_told_to_a_job_have_the_best_batch_of_its_configuration(noise):
    best = best_batches(MODEL.throughput, LIMITS, noise, nodes=NODES, gpus=GPUS)
    for k, (nodes, gpus) in enumerate(zip(NODES.tolist(), GPUS.tolist(), strict=True)):
        choices = batch_choices(MODEL.throughput, LIMITS, nodes=nodes, gpus=gpus)
        assert choices == sorted(choices)
        assert choices[-1].batch <= LIMITS.most
        chosen = best_choice(choices, noise, LIMITS.initial)
        assert (chosen.batch, chosen.passes) == (best.total(GPUS)[k], best.passes[k])


@pytest.mark.parametrize("gpus", [3, 5, 7, 12])
def test_the_largest_choice_is_rounded_down_where_the_gpus_do_not_divide_it(gpus):
    choices = batch_choices(MODEL.throughput, BatchLimits(16, 128, 48), nodes=1, gpus=gpus)
    assert 128 - 2 * gpus < choices[-1].batch <= 128
    assert all(one.batch % (gpus * (one.passes + 1)) == 0 for one in choices)


def test_a_gang_too_large_for_any_batch_has_no_choice():
    assert batch_choices(MODEL.throughput, LIMITS, nodes=40, gpus=320) == []


def test_a_gang_too_large_for_any_batch_gets_nothing_done():
    narrow = BatchLimits(initial=128, most=128, most_per_gpu=8, least_per_gpu=200)
    assert best_batches(MODEL.throughput, narrow, NOISY, nodes=NODES, gpus=GPUS).goodput.tolist() == [0] * 5


@given(
    sqr=st.floats(1e-6, 1e6),
    var=st.floats(0, 1e6),
    initial=st.integers(1, 512),
    factor=st.integers(1, 64),
    per_gpu=st.integers(1, 512),
)
def test_goodput_is_never_more_than_throughput(sqr, var, initial, factor, per_gpu):
    limits = BatchLimits(initial=initial, most=initial * factor, most_per_gpu=per_gpu)
    found = best_batches(MODEL.throughput, limits, GradientNoise(sqr, var), nodes=NODES, gpus=GPUS)
    throughput = MODEL.throughput(NODES, GPUS, found.local, found.passes)
    assert (found.goodput <= throughput * (1 + 1e-9)).all()
