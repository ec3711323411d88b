"""Rates of jobs whose replicas take several GPUs: between types the replicas stay, and the GPUs follow."""

import numpy as np
import pytest

from estimation.batch_tuning import tuned_rates
from estimation.fitted_models import Fits
from estimation.goodput import BatchLimits
from estimation.profile import GpuSpec, Knowledge, Measured, Measurement, Tuning
from estimation.rates import Source, workload_rates
from estimation.replicas import InReplicas
from estimation.scaling import Machines

A100, V100, T4 = 0, 1, 2
SPECS = [GpuSpec("a100", 400.0, 3_600.0, 40_960), GpuSpec("v100", 100.0, 900.0, 16_384), GpuSpec("t4", 60, 300, 16_000)]
UNITS = np.array([2, 4, 0])
"""A replica takes two A100 or four V100; no T4 holds its part."""
USAGE = [[1, 2, 4, 8, 0, 0, 0, 0, 2], [0, 0, 0, 0, 4, 6, 8, 0, 2], [0, 0, 0, 0, 0, 0, 0, 4, 0]]
MACHINES = Machines(SPECS, np.array(USAGE), np.array([1, 1, 1, 1, 1, 1, 2, 1, 1]))
TWO_A100, FOUR_A100, EIGHT_A100, FOUR_V100, EIGHT_V100 = 1, 2, 3, 4, 6


def rates(knowledge):
    view = InReplicas.of(MACHINES, UNITS)
    rate, source = workload_rates(view.machines, view.known(knowledge))
    return view.spread(rate), view.spread(source)


def test_only_whole_replicas_on_one_type_have_a_rate():
    rate, source = rates(Knowledge(declared={(A100, 2): 10.0}))
    assert np.flatnonzero(rate).tolist() == [TWO_A100, FOUR_A100, EIGHT_A100, FOUR_V100, EIGHT_V100]
    assert source[[0, TWO_A100, FOUR_A100]].tolist() == [Source.NONE, Source.DECLARED, Source.ESTIMATED]


def test_more_replicas_are_faster_by_the_law_of_scaling():
    rate, _ = rates(Knowledge(declared={(A100, 2): 10.0}))
    assert rate[EIGHT_A100] / rate[TWO_A100] == pytest.approx(4**0.8)


def test_a_rate_of_another_type_is_that_of_as_many_replicas():
    """An A100 is four times as fast as a V100, and a replica has two of the first or four of the second."""
    rate, _ = rates(Knowledge(declared={(A100, 2): 10.0}))
    assert rate[FOUR_V100] == pytest.approx(10.0 / 4 * 4**0.8 / 2**0.8)
    assert rate[EIGHT_V100] == pytest.approx(rate[FOUR_V100] * 2**0.8 * 0.7)  # on two nodes


def test_what_was_measured_with_whole_replicas_counts_and_parts_of_one_do_not():
    seen = {(V100, 8, 2): Measurement(7.0, 9), (V100, 6, 1): Measurement(99.0, 9), (T4, 4, 1): Measurement(99.0, 9)}
    rate, source = rates(Knowledge(Measured(seen)))
    assert (rate[EIGHT_V100], source[EIGHT_V100]) == (7.0, Source.MEASURED)
    assert rate.max() < 99


def test_a_batch_is_tuned_for_replicas():
    """Sixteen samples fit on a replica at once: with four replicas, that is a batch of 64 at least in one pass."""
    view, limits = InReplicas.of(MACHINES, UNITS), BatchLimits(initial=64, most=64, most_per_gpu=16)
    knowledge = Knowledge(declared={(A100, 2): 10.0}, tuning=Tuning(limits))
    tuned = view.spread_tuned(tuned_rates(view.machines, view.known(knowledge), Fits()))
    assert (tuned.batch[EIGHT_A100], tuned.passes[EIGHT_A100], tuned.passes[FOUR_A100]) == (64, 0, 1)
    assert tuned.rate[0] == 0


def test_replicas_of_one_gpu_are_the_machines_themselves():
    view = InReplicas.of(MACHINES, np.ones(3, dtype=np.int64))
    known = Knowledge(declared={(A100, 2): 10.0})
    assert view.machines is MACHINES
    assert view.known(known) is known
