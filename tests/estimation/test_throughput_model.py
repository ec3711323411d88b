"""The throughput model: as recorded from the original, its slope right, and what timings do not tell held fixed."""

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from recorded_applications import needs_reference, recorded_values
from scipy.optimize import approx_fprime

from estimation import throughput_model
from estimation.throughput_model import NOTHING, ThroughputModel, Timings, fit, loss

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


# -- against the original ----------------------------------------------------------------------------------------


@needs_reference
@pytest.mark.parametrize(
    "recorded", recorded_values("fit"), ids=lambda r: f"{r['app']}-{r['gpu']}-{len(r['step_time'])}"
)
def test_a_fit_is_as_good_as_the_originals_and_predicts_the_same(recorded):
    timings = timings_of(recorded)
    model, original = fit(timings), ThroughputModel(**recorded["params"])
    assert loss(model, timings) <= recorded["objective"] + 1e-3
    predicted = (timings.nodes, timings.gpus, timings.local_batch)
    assert_allclose(model.throughput(*predicted), original.throughput(*predicted), rtol=0.02)


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


def test_the_slope_is_that_of_the_loss():
    timings = timed((1, 1, 32), (1, 2, 16), (1, 4, 8), (2, 8, 32), (4, 16, 8))
    steps = Timings.of_steps(
        timings.nodes.tolist(),
        timings.gpus.tolist(),
        timings.local_batch.tolist(),
        timings.step_s.tolist(),
        [1, 0, 2, 0, 1],
    )
    seen, theta = throughput_model._Logarithms.of(steps), np.array([0.1, 0.01, 0.05, 0.002, 0.03, 0.001, 1.7])
    slope = approx_fprime(theta, lambda x: throughput_model._loss_and_slope(x, seen)[0], 1e-8)
    assert_allclose(throughput_model._loss_and_slope(theta, seen)[1], slope, rtol=1e-4, atol=1e-6)


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


def test_nodes_that_were_never_spanned_are_taken_to_cost_more_than_one():
    model = fit(timed((1, 1, 32), (1, 2, 32), (1, 4, 32)))
    assert model.alpha_r > NOTHING
    assert model.alpha_n >= 1.1 * model.alpha_r
    assert model.throughput(2, 4, 32) < model.throughput(1, 4, 32)
