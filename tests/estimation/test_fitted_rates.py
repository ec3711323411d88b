"""Rates from a fitted model: where steps were timed well enough it says how they scale; elsewhere the law does."""

import numpy as np
import pytest

from estimation.batch_tuning import Tuned
from estimation.batch_tuning import tuned_rates as tuned_within
from estimation.fitted_models import Fits, fixed_batch, models_of, rounded
from estimation.goodput import BatchLimits, GradientNoise
from estimation.profile import GpuSpec, Knowledge, Measured, Measurement, Tuning
from estimation.rates import estimate_rates, workload_rates
from estimation.scaling import Machines, Source
from estimation.throughput_model import ThroughputModel
from tests.estimation.recorded_applications import PROFILES, needs_reference

V100, A100 = 0, 1
SPECS = (GpuSpec("v100", 100.0, 900.0, 16_384), GpuSpec("a100", 400.0, 3_600.0, 40_960))
USAGE = np.array([[1, 2, 4, 8, 0, 0, 0], [0, 0, 0, 0, 1, 2, 4]])
ONE, TWO, FOUR, EIGHT_ON_TWO, A_ONE, A_TWO, A_FOUR = range(7)
TRUE = ThroughputModel(0.02, 0.002, 0.05, 0.003, 0.03, 0.002, 1.6)
LIMITS = BatchLimits(initial=128, most=4096, most_per_gpu=256)
NOISY = GradientNoise(1.0, 20.0)


@pytest.fixture
def machines():
    return Machines(SPECS, USAGE, np.array([1, 1, 1, 2, 1, 1, 1]))


def steps_per_second(gpus, nodes, batch, passes=0):
    return float(1 / TRUE.step_seconds(nodes, gpus, batch / gpus / (passes + 1), passes))


def timed(*places, gpu_type=V100):
    """Steps/s of the true model, at (GPUs, nodes, batch)."""
    return {(gpu_type, g, d, batch): Measurement(steps_per_second(g, d, batch), 100) for g, d, batch in places}


def tuned_rates(machines: Machines, knowledge: Knowledge) -> Tuned:
    return tuned_within(machines, knowledge, Fits())


def tuned(seen, noise=None, declared=None, limits=LIMITS):
    return Knowledge.of_batches(seen, declared or {}, Tuning(limits, noise))


# -- whose batch is their own affair -----------------------------------------------------------------------------


def test_steps_timed_with_two_batches_per_gpu_say_how_the_rate_scales(machines):
    known = Knowledge.of_batches(timed((1, 1, 64), (1, 1, 128), (2, 1, 128)), {})
    rate, source = workload_rates(machines, known)
    assert (rate[TWO], source[TWO]) == (pytest.approx(steps_per_second(2, 1, 128)), Source.MEASURED)
    assert source[FOUR] == Source.FITTED
    assert rate[FOUR] == pytest.approx(steps_per_second(4, 1, 128), rel=0.15)


def test_steps_timed_with_one_batch_per_gpu_leave_the_law_in_force(machines):
    rate, _ = workload_rates(machines, Knowledge.of_batches(timed((1, 1, 128)), {}))
    assert rate[FOUR] == pytest.approx(rate[ONE] * 4**0.8)


def test_steps_of_unknown_batch_leave_the_scaling_law_in_force(machines):
    seen = {(V100, gpus, 1, 0): Measurement(10.0 * gpus**0.5, 9) for gpus in (1, 2)}
    rate, _ = workload_rates(machines, Knowledge.of_batches(seen, {}))
    assert rate[FOUR] == pytest.approx(rate[TWO] * 2**0.8)


def test_what_spanning_nodes_costs_is_the_laws_until_it_was_timed(machines):
    once = timed((1, 1, 64), (1, 1, 128), (4, 1, 128))
    unseen, _ = workload_rates(machines, Knowledge.of_batches(once, {}))
    assert unseen[EIGHT_ON_TWO] == pytest.approx(unseen[FOUR] * 2**0.8 * 0.7)
    seen, _ = workload_rates(machines, Knowledge.of_batches(once | timed((4, 2, 128), (16, 4, 128)), {}))
    assert seen[EIGHT_ON_TWO] == pytest.approx(steps_per_second(8, 2, 128), rel=0.2)


def test_another_type_is_projected_by_the_ratio_of_the_rates_on_one_gpu(machines):
    seen = timed((1, 1, 64), (1, 1, 128), (2, 1, 128), (4, 1, 128))
    seen |= {(A100, 1, 1, 128): Measurement(3 * steps_per_second(1, 1, 128), 100)}
    known = Knowledge(Measured({k[:3]: m for k, m in seen.items() if k[3] == 128}), timed=seen)
    rate, source = workload_rates(machines, known)
    assert rate[A_FOUR] / rate[FOUR] == pytest.approx(rate[A_ONE] / rate[ONE], rel=0.1)
    assert source[A_FOUR] == Source.ESTIMATED


def test_what_was_declared_comes_before_what_was_fitted(machines):
    known = Knowledge.of_batches(timed((1, 1, 64), (1, 1, 128)), {(V100, 4): 30.0})
    rate, source = workload_rates(machines, known)
    assert (rate[FOUR], source[FOUR]) == (30.0, Source.DECLARED)


def test_workloads_known_at_the_same_points_have_each_its_own_model(machines):
    slow = {
        place: Measurement(m.rate / 3, m.reports) for place, m in timed((1, 1, 64), (1, 1, 128), (2, 1, 128)).items()
    }
    known = [
        Knowledge.of_batches(timed((1, 1, 64), (1, 1, 128), (2, 1, 128)), {}),
        Knowledge(Measured({(V100, 1, 1): Measurement(5.0, 9), (V100, 2, 1): Measurement(6.0, 9)})),
        Knowledge.of_batches(slow, {}),
    ]
    together, _ = estimate_rates(machines, known, np.arange(3), np.ones((3, 7), dtype=bool))
    assert together.tolist() == [workload_rates(machines, one)[0].tolist() for one in known]


def test_a_batch_that_grows_with_the_gpus_leaves_the_law_in_force(machines):
    known = Knowledge.of_batches(timed((1, 1, 64), (2, 1, 128), (4, 1, 512)), {})
    rate, _ = workload_rates(machines, known)
    assert rate[EIGHT_ON_TWO] == pytest.approx(rate[FOUR] * 2**0.8 * 0.7)
    assert fixed_batch(known) is None


def test_the_batch_reported_most_is_the_workloads():
    seen = {(V100, 1, 1, 64): Measurement(1, 5), (V100, 1, 1, 128): Measurement(1, 9)}
    assert fixed_batch(Knowledge(timed=seen)) == 128


def test_a_mean_that_has_hardly_moved_asks_for_no_new_fit():
    one, other = ({(V100, 1, 1, b): Measurement(rate * b, 9) for b in (32, 64)} for rate in (0.1, 0.1001))
    assert models_of(Knowledge(timed=one), Fits())[V100] is models_of(Knowledge(timed=other), Fits())[V100]


def test_there_are_no_more_new_fits_at_once_than_allowed_and_those_known_are_free(machines):
    one, other = (Knowledge(timed=timed((1, 1, 64), (1, 1, batch))) for batch in (200, 300))
    assert not models_of(one, Fits(0))
    sparing = Fits(1)
    assert models_of(one, sparing)
    assert not models_of(other, sparing)
    assert models_of(one, Fits(0))


def test_rounding_changes_a_rate_by_one_percent_at_most():
    values = np.geomspace(1e-6, 1e6, 1000)
    assert max(abs(rounded(value) / value - 1) for value in values.tolist()) <= 0.0101


@needs_reference
@pytest.mark.parametrize("gpu_type", ["aws", "rtx", "dgx-ext"])
@pytest.mark.parametrize("application", ["bert", "cifar10", "deepspeech2", "imagenet", "yolov3"])
def test_the_model_of_one_gpu_with_three_batches_errs_less_than_a_factor_of_two_on_two(application, gpu_type):
    times = PROFILES.application(application).times(gpu_type)
    least, most = times.per_gpu
    batches = [int(least), int((least + most) / 2), int(most)]
    seen = {(V100, 1, 1, b): Measurement(1 / times.at((1,), b)[0], 100 if b == batches[-1] else 9) for b in batches}
    machines = Machines(SPECS[:1], np.array([[1, 2]]), np.array([1, 1]))
    rate, _ = workload_rates(machines, Knowledge(Measured({(V100, 1, 1): seen[V100, 1, 1, batches[-1]]}), timed=seen))
    assert abs(np.log(rate[1] * times.at((2,), batches[-1] // 2)[0])) < np.log(2)


# -- whose batch is tuned ----------------------------------------------------------------------------------------


def test_nothing_known_of_the_noise_leaves_the_initial_batch(machines):
    found = tuned_rates(machines, tuned(timed((1, 1, 128), (1, 1, 64))))
    assert found.batch.tolist() == [128] * 7
    assert found.gain.tolist() == [1] * 7


def test_the_noisier_the_gradient_the_larger_the_batch_on_many_gpus(machines):
    found = tuned_rates(machines, tuned(timed((1, 1, 128), (2, 1, 128), (4, 1, 128)), NOISY))
    assert found.batch[FOUR] > found.batch[ONE] >= 128
    assert (found.gain >= 1).all()


def test_the_rate_is_what_the_step_brings_in_steps_of_the_initial_batch(machines):
    found = tuned_rates(machines, tuned(timed((1, 1, 128), (2, 1, 128), (4, 1, 128)), NOISY))
    step = steps_per_second(4, 1, int(found.batch[FOUR]), int(found.passes[FOUR]))
    assert found.rate[FOUR] == pytest.approx(step * found.gain[FOUR], rel=0.15)


def test_a_batch_that_was_measured_is_counted_as_measured(machines):
    seen = timed((1, 1, 128), (2, 1, 128), (4, 1, 128))
    first = tuned_rates(machines, tuned(seen, NOISY))
    step, batch = float(first.rate[FOUR] / first.gain[FOUR]), int(first.batch[FOUR])
    then = tuned_rates(machines, tuned(seen | {(V100, 4, 1, batch): Measurement(step, 9)}, NOISY))
    assert (int(then.batch[FOUR]), then.source[FOUR]) == (batch, Source.MEASURED)
    assert then.rate[FOUR] == pytest.approx(step * then.gain[FOUR])


def test_the_initial_batch_where_it_was_measured_has_the_measured_rate(machines):
    found = tuned_rates(machines, tuned(timed((1, 1, 128))))
    assert (found.rate[ONE], found.source[ONE]) == (pytest.approx(steps_per_second(1, 1, 128)), Source.MEASURED)


def test_a_declared_rate_is_that_of_the_initial_batch(machines):
    found = tuned_rates(machines, tuned({}, None, {(V100, 1): 5.0}))
    assert (found.rate[ONE], found.source[ONE]) == (pytest.approx(5.0, rel=0.011), Source.DECLARED)
    assert found.rate[FOUR] == pytest.approx(found.rate[ONE] * 4**0.8)


def test_gpus_that_cannot_share_the_initial_batch_get_the_least_they_can(machines):
    limits = BatchLimits(initial=128, most=4096, most_per_gpu=256, least_per_gpu=64)
    found = tuned_rates(machines, tuned({}, limits=limits))
    assert found.batch[[ONE, TWO, FOUR, EIGHT_ON_TWO]].tolist() == [128, 128, 256, 512]
    assert found.rate[FOUR] < found.rate[TWO]  # what more samples are worth is not known


def test_a_gang_too_large_for_the_largest_batch_is_no_configuration(machines):
    known = tuned({}, limits=BatchLimits(initial=128, most=256, most_per_gpu=128, least_per_gpu=64))
    rate, source = estimate_rates(machines, [known], np.array([0]), np.ones((1, 7), dtype=bool))
    assert (rate[0] > 0).tolist() == [True, True, True, False, True, True, True]
    assert source[0, EIGHT_ON_TWO] == Source.NONE


def test_no_batch_is_larger_than_the_largest(machines):
    limits = BatchLimits(initial=100, most=1001, most_per_gpu=70)
    found = tuned_rates(
        machines, tuned(timed((1, 1, 100), (2, 1, 100), (4, 1, 100)), GradientNoise(0.0, 1.0), limits=limits)
    )
    assert (found.batch <= 1001).all()
    assert (found.batch % (USAGE.sum(axis=0) * (found.passes + 1)) == 0).all()


def test_the_unit_of_the_gradient_does_not_matter(machines):
    seen = timed((1, 1, 128), (2, 1, 128), (4, 1, 128))
    one, other = (tuned_rates(machines, tuned(seen, GradientNoise(1.0 * u, 20.0 * u))) for u in (1.0, 1e-9))
    assert one.batch.tolist() == other.batch.tolist()


def test_a_mixed_gang_runs_as_its_slowest_type():
    machines = Machines(SPECS, np.array([[2, 4, 0], [2, 0, 4]]), np.array([1, 1, 1]))
    found = tuned_rates(machines, tuned({}, None, {(V100, 1): 5.0, (A100, 1): 20.0}))
    assert found.rate[0] == found.rate[1] < found.rate[2]


def test_a_job_with_a_fixed_batch_is_not_tuned(machines):
    with pytest.raises(ValueError, match="not to be tuned"):
        tuned_rates(machines, Knowledge())
