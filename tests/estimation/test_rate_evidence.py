"""Evidence behind rates: spreads are shrunk from the table to what runs show, and each rate tells its runs."""

from dataclasses import replace
from math import log

import numpy as np
import pytest

from estimation.gpu_specifications import GPU_SPECIFICATIONS
from estimation.profile import Knowledge, Measured, Measurement
from estimation.rate_evidence import OTHER_SPREAD, SPREADS, limits, rate_evidence, shrunk_spread, table_evidence
from estimation.scaling import Machines, Source

SEEN = Measurement(rate=10.0, reports=50, runs=4, weight=4, deviation=0.1)
MACHINES = Machines(
    [GPU_SPECIFICATIONS["a100"].spec, GPU_SPECIFICATIONS["t4"].spec], np.array([[1, 2, 0], [0, 0, 1]]), np.ones(3)
)


def test_one_run_leaves_the_spread_of_the_table() -> None:
    assert shrunk_spread(replace(SEEN, runs=1, weight=1, deviation=0.0)) == pytest.approx(SPREADS[Source.MEASURED])


def test_a_rate_whose_runs_are_not_counted_has_the_spread_of_the_table() -> None:
    assert shrunk_spread(Measurement(10.0, 50)) == pytest.approx(SPREADS[Source.MEASURED])


def test_many_runs_tell_their_own_spread() -> None:
    assert shrunk_spread(replace(SEEN, runs=900, weight=900)) == pytest.approx(0.1, rel=0.01)


def test_few_runs_lie_between_the_table_and_their_own_spread() -> None:
    assert SPREADS[Source.MEASURED] < shrunk_spread(SEEN) < 0.1


def test_runs_that_agree_narrow_the_spread() -> None:
    assert shrunk_spread(replace(SEEN, deviation=0.0)) < SPREADS[Source.MEASURED]


def test_only_the_place_that_was_measured_has_its_spread_and_others_go_by_all_runs() -> None:
    known = [Knowledge(Measured({(0, 1, 1): SEEN}))]
    source = np.array([[Source.MEASURED, Source.ESTIMATED, Source.COMPLETED]])
    evidence = rate_evidence(MACHINES, known, np.array([0]), source)
    assert evidence.spread.tolist() == [[shrunk_spread(SEEN), OTHER_SPREAD, OTHER_SPREAD]]
    assert evidence.runs.tolist() == [[4, 4, 4]]


def test_what_an_owner_declares_has_no_runs() -> None:
    evidence = rate_evidence(MACHINES, [Knowledge()], np.array([0]), np.full((1, 3), Source.DECLARED))
    assert (evidence.runs == 0).all()
    assert (evidence.spread == SPREADS[Source.DECLARED]).all()


def test_an_archive_of_sources_alone_has_the_spreads_of_the_table() -> None:
    found = table_evidence(np.array([[Source.MEASURED, Source.DECLARED, Source.FITTED]]))
    assert found.spread.tolist() == [[SPREADS[Source.MEASURED], SPREADS[Source.DECLARED], OTHER_SPREAD]]


def test_limits_are_as_far_below_as_above_by_their_quotient() -> None:
    low, high = limits(10.0, 0.05)
    assert log(10.0 / low) == pytest.approx(log(high / 10.0))
    assert low < 10.0 < high
