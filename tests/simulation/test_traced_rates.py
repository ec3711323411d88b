"""Rates that a trace tells of its jobs."""

import pytest

from simulation.traces.trace import KnownRate, Program
from simulation.workloads.rate_sources import BySpeed, TracedRates

RATES = TracedRates(BySpeed())
A100 = Program(rates=(KnownRate("a100", 1, 10.0), KnownRate("a100", 4, 30.0)))


def test_what_is_known_is_used_as_it_is():
    assert RATES.rate(A100, "a100", (4,)) == 30


def test_between_known_numbers_of_gpus_the_nearest_is_scaled():
    assert 30 < RATES.rate(A100, "a100", (5,)) < 60
    assert 10 < RATES.rate(A100, "a100", (2,)) < 30


def test_another_type_is_as_much_slower_as_its_data_sheet_says():
    slower = BySpeed().rate(Program(), "t4", (1,)) / BySpeed().rate(Program(), "a100", (1,))
    assert RATES.rate(A100, "t4", (1,)) == pytest.approx(10 * slower)


def test_of_a_type_without_a_data_sheet_only_what_is_known_is_used():
    own = Program(rates=(KnownRate("prototype", 1, 10.0),))
    assert RATES.rate(own, "prototype", (1,)) == 10
    assert 10 < RATES.rate(own, "prototype", (2,)) < 20
    assert RATES.rate(own, "a100", (1,)) == 0


def test_a_job_without_rates_has_those_of_the_other_source():
    assert RATES.rate(Program(), "v100", (1,)) == 1
