"""Rates: what was measured wins, what was declared follows, the rest is estimated by stated laws."""

import numpy as np
import pytest

from estimation.profile import Contradiction, GpuSpec, Knowledge, Measured, Measurement
from estimation.rates import Machines, Source, estimate_rates, valid_configurations, workload_rates

V100, A100 = 0, 1
SPECS = (GpuSpec("v100", 100.0, 900.0, 16_384), GpuSpec("a100", 400.0, 3_600.0, 40_960))
ONE, FOUR, EIGHT_ON_TWO, A_ONE, A_FOUR = range(5)


@pytest.fixture
def machines():
    return Machines(SPECS, np.array([[1, 4, 8, 0, 0], [0, 0, 0, 1, 4]]), np.array([1, 1, 2, 1, 1]))


def test_a_measured_rate_is_used_before_a_declared_one(machines):
    known = Knowledge(Measured({(V100, 4, 1): Measurement(21.0, 3)}), {(V100, 4): 20.0})
    rate, source = workload_rates(machines, known)
    assert (rate[FOUR], source[FOUR]) == (21.0, Source.MEASURED)


def test_two_reports_are_not_yet_a_measurement(machines):
    known = Knowledge(Measured({(V100, 4, 1): Measurement(21.0, 2)}), {(V100, 4): 20.0})
    rate, source = workload_rates(machines, known)
    assert (rate[FOUR], source[FOUR]) == (20.0, Source.DECLARED)


def test_a_declared_rate_that_a_measurement_contradicts_is_reported():
    known = Knowledge(Measured({(V100, 1, 1): Measurement(10.0, 5)}), {(V100, 1): 13.0, (V100, 4): 30.0})
    assert known.contradictions() == (Contradiction(V100, 1, 13.0, 10.0),)


def test_a_declared_rate_within_a_quarter_of_the_measured_one_is_not_contradicted():
    known = Knowledge(Measured({(V100, 1, 1): Measurement(10.0, 5)}), {(V100, 1): 12.5})
    assert known.contradictions() == ()


def test_a_contradicted_rate_is_no_longer_used_for_other_nodes(machines):
    known = Knowledge(Measured({(V100, 8, 8): Measurement(10.0, 5)}), {(V100, 8): 80.0})
    rate, source = workload_rates(machines, known)
    assert (rate[EIGHT_ON_TWO], source[EIGHT_ON_TWO]) == (pytest.approx(10.0), Source.ESTIMATED)


def test_an_untried_size_follows_the_scaling_law_from_the_nearest_size(machines):
    known = Knowledge(declared={(V100, 4): 20.0})
    rate, _ = workload_rates(machines, known)
    assert rate[[ONE, EIGHT_ON_TWO]] == pytest.approx([20.0 / 4**0.8, 20.0 * 2**0.8 * 0.7])


def test_a_declared_rate_holds_on_however_many_nodes_the_gang_lies():
    machines = Machines(SPECS, np.array([[6, 6], [0, 0]]), np.array([3, 2]))
    rate, source = workload_rates(machines, Knowledge(declared={(V100, 6): 20.0}))
    assert (rate.tolist(), source.tolist()) == ([20.0, 20.0], [Source.DECLARED] * 2)


def test_another_type_is_estimated_by_the_ratio_of_the_speeds(machines):
    rate, source = workload_rates(machines, Knowledge(declared={(V100, 1): 5.0}))
    assert (rate[A_ONE], source[A_ONE]) == (pytest.approx(20.0), Source.ESTIMATED)


def test_nothing_known_still_gives_the_right_relative_speeds(machines):
    rate, _ = workload_rates(machines, Knowledge())
    assert rate[A_FOUR] / rate[ONE] == pytest.approx(4 * 4**0.8)


def test_a_mixed_gang_is_as_fast_as_if_all_its_gpus_were_the_slowest():
    machines = Machines(SPECS, np.array([[2], [2]]), np.array([2]))
    rate, source = workload_rates(machines, Knowledge(declared={(V100, 1): 5.0, (A100, 1): 20.0}))
    assert (rate[0], source[0]) == (pytest.approx(5.0 * 4**0.8 * 0.7), Source.ESTIMATED)


def test_configurations_of_a_wrong_type_memory_or_size_are_not_valid(machines):
    any_type = np.array([True, True])
    large = valid_configurations(machines, gpu_types=any_type, least_gpus=1, most_gpus=8, gpu_memory_mib=20_000)
    four = valid_configurations(machines, gpu_types=any_type, least_gpus=2, most_gpus=4)
    v100 = valid_configurations(machines, gpu_types=np.array([True, False]), least_gpus=1, most_gpus=4)
    assert [large.tolist(), four.tolist(), v100.tolist()] == [
        [False, False, False, True, True],
        [False, True, False, False, True],
        [True, True, False, False, False],
    ]


def test_jobs_of_one_workload_share_its_rates_where_each_may_run(machines):
    valid = np.array(
        [[True, False, False, True, False], [True, True, True, True, True], [False, True, False, False, False]]
    )
    known = [Knowledge(declared={(V100, 1): 5.0}), Knowledge(Measured({(V100, 4, 1): Measurement(7.0, 9)}))]
    rate, source = estimate_rates(machines, known, np.array([0, 0, 1]), valid)
    alone, _ = workload_rates(machines, known[0])
    assert rate[1].tolist() == alone.tolist()
    assert rate[0].tolist() == np.where(valid[0], alone, 0).tolist()
    assert (rate[2].tolist(), source[2].tolist()) == ([0, 7.0, 0, 0, 0], [0, Source.MEASURED, 0, 0, 0])
