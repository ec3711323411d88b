"""Rates on types where a workload never ran follow from it elsewhere, and from what others do on both."""

from statistics import median

import numpy as np
import pytest

from estimation.completion import Cells, RateFactors, factors_of, fit_factors
from estimation.profile import GpuSpec, Knowledge, Measured, Measurement, Place
from estimation.rates import Machines, Source, workload_rates
from tests.reference import reference

V100, A100, T4 = 0, 1, 2
SPECS = (
    GpuSpec("v100", 100.0, 900.0, 16_384),
    GpuSpec("a100", 400.0, 3_600.0, 40_960),
    GpuSpec("t4", 50.0, 450.0, 16_384),
)
SPEED = np.array([spec.speed for spec in SPECS])
V_ONE, V_FOUR, A_ONE, A_FOUR, T_ONE = range(5)
PLACES: list[Place] = [(V100, 1, 1), (V100, 4, 1), (A100, 1, 1), (A100, 4, 1), (T4, 1, 1)]


@pytest.fixture
def machines() -> Machines:
    usage = np.array([[1, 4, 0, 0, 0], [0, 0, 1, 4, 0], [0, 0, 0, 0, 1]])
    return Machines(SPECS, usage, np.ones(5, dtype=np.int64))


def workloads(number: int, *, a100: float, exponent: float = 0.8) -> list[dict[Place, float]]:
    """Measured on one V100, and on one and four A100 that are so many times as fast as it."""
    scales = np.geomspace(0.1, 100, number).tolist()
    return [{(V100, 1, 1): s, (A100, 1, 1): s * a100, (A100, 4, 1): s * a100 * 4**exponent} for s in scales]


def measured(**rates: float) -> Knowledge:
    """On one GPU of these types."""
    index = {spec.name: j for j, spec in enumerate(SPECS)}
    return Knowledge(Measured({(index[name], 1, 1): Measurement(rate, 3) for name, rate in rates.items()}))


def factors(known: list[dict[Place, float]]) -> RateFactors:
    found = factors_of(SPEED, known)
    assert found is not None
    return found


def test_a_rate_on_another_type_is_in_the_ratio_of_the_other_workloads_and_not_of_the_specification(
    machines: Machines,
) -> None:
    rate, source = workload_rates(machines, measured(v100=5.0), factors(workloads(20, a100=1.5)))
    assert (rate[A_ONE], source[A_ONE]) == (pytest.approx(7.5, rel=0.1), Source.COMPLETED)


def test_a_gang_scales_as_the_other_workloads_do(machines: Machines) -> None:
    rate, source = workload_rates(machines, measured(a100=5.0), factors(workloads(20, a100=1.5, exponent=0.4)))
    assert (rate[A_FOUR], source[A_FOUR]) == (pytest.approx(5.0 * 4**0.4, rel=0.1), Source.COMPLETED)


def test_a_workload_that_scales_as_some_others_do_gains_from_a_type_as_they_do() -> None:
    fast, slow = workloads(20, a100=4, exponent=0.9), workloads(20, a100=1, exponent=0.3)
    found, at, cells = factors([*fast, *slow]), Cells.of(PLACES[A_ONE : A_FOUR + 1]), Cells.of([PLACES[V_ONE]])
    rates = found.complete(at, np.array([[4.0, 4.0 * 4**0.9], [4.0, 4.0 * 4**0.3]]), cells).rate
    assert rates[:, 0] == pytest.approx([1.0, 4.0], rel=0.25)


def test_a_workload_that_ran_nowhere_has_the_relative_rates_of_the_others(machines: Machines) -> None:
    rate, source = workload_rates(machines, Knowledge(), factors(workloads(20, a100=1.5)))
    assert rate[A_ONE] / rate[V_ONE] == pytest.approx(1.5, rel=0.1)
    assert source[A_ONE] == Source.ASSUMED


def test_measured_and_declared_rates_stay_as_they_are(machines: Machines) -> None:
    known = measured(v100=5.0).with_declared({(A100, 1): 20.0})
    rate, source = workload_rates(machines, known, factors(workloads(20, a100=1.5)))
    assert rate[[V_ONE, A_ONE]].tolist() == [5.0, 20.0]
    assert source[[V_ONE, A_ONE]].tolist() == [Source.MEASURED, Source.DECLARED]


def test_a_type_on_which_nobody_was_measured_is_estimated_as_before(machines: Machines) -> None:
    rate, source = workload_rates(machines, measured(v100=5.0), factors(workloads(20, a100=1.5)))
    alone, _ = workload_rates(machines, measured(v100=5.0))
    assert (rate[T_ONE], source[T_ONE]) == (alone[T_ONE], Source.ESTIMATED)


def test_a_workload_that_ran_only_where_no_other_did_is_estimated_as_before(machines: Machines) -> None:
    rate, source = workload_rates(machines, measured(t4=5.0), factors(workloads(20, a100=1.5)))
    alone, _ = workload_rates(machines, measured(t4=5.0))
    assert (rate.tolist(), source[A_ONE]) == (alone.tolist(), Source.ESTIMATED)


def test_two_workloads_tell_nothing() -> None:
    assert factors_of(SPEED, workloads(2, a100=1.5)) is None


def test_workloads_measured_in_one_cell_tell_nothing() -> None:
    assert factors_of(SPEED, [{(V100, 1, 1): 1.0}] * 10) is None


def test_a_type_with_a_fitted_model_of_the_workload_keeps_its_model(machines: Machines) -> None:
    timed = {(A100, 1, 1, batch): Measurement(1 / (0.01 + batch * 0.001), 3) for batch in (16, 32)}
    timed |= {(A100, 2, 1, 32): Measurement(1 / (0.02 + 16 * 0.001), 9)}
    known = Knowledge(Knowledge.of_batches(timed, {}).measured, {}, timed)
    with_others, source = workload_rates(machines, known, factors(workloads(20, a100=1.5)))
    alone, _ = workload_rates(machines, known)
    assert (with_others[A_FOUR], source[A_FOUR]) == (alone[A_FOUR], Source.FITTED)


def test_the_order_of_the_workloads_does_not_matter() -> None:
    known = workloads(10, a100=1.5)
    forth, back = factors(known), factors(known[::-1])
    assert forth.mean.tolist() == back.mean.tolist()


def test_the_spread_is_that_of_the_error() -> None:
    """About two thirds of the rates lie within one spread of what was completed, nearly all within two."""
    rng = np.random.default_rng(1)
    scale, faster = np.exp(rng.normal(size=200)), np.exp(rng.normal(0.5, 0.3, size=200))
    rows: list[dict[Place, float]] = [
        {(V100, 1, 1): s, (A100, 1, 1): s * f} for s, f in zip(scale.tolist(), faster.tolist(), strict=True)
    ]
    found = fit_factors(SPEED, rows[:100])
    assert found is not None
    at, cells = Cells.of([(V100, 1, 1)]), Cells.of([(A100, 1, 1)])
    completed = found.complete(at, scale[100:, None], cells)
    off = np.abs(np.log(completed.rate[:, 0] / (scale * faster)[100:])) / completed.spread[0]
    assert 0.55 < (off < 1).mean() < 0.85
    assert (off < 2).mean() > 0.9


def test_the_size_of_a_step_does_not_matter() -> None:
    known = [
        *workloads(10, a100=1.5),
        *({cell: 100 * rate for cell, rate in of.items()} for of in workloads(10, a100=3)),
    ]
    found, at, cells = factors(known), Cells.of([(V100, 1, 1)]), Cells.of(PLACES)
    small, large = found.complete(at, np.array([[1.0], [1000.0]]), cells).rate
    assert large == pytest.approx(1000 * small, rel=1e-3)


def test_each_further_cell_narrows_the_spread() -> None:
    found, cells = factors(workloads(10, a100=1.5)), Cells.of([(A100, 4, 1)])
    at = [Cells.of(PLACES[:n]) for n in (0, 1, 2, 3)]
    spreads = [found.complete(one, np.ones((1, len(one.gpus))), cells).spread[0] for one in at]
    assert spreads == sorted(spreads, reverse=True)


def test_on_gavels_table_a_workload_left_out_is_completed_with_two_thirds_of_the_error_or_less() -> None:
    reference("gavel")
    from benchmarks.completion import by_completion, by_specification, cases, gavel  # noqa: PLC0415 - needs the data

    table, errors = gavel(), {by_completion: [], by_specification: []}
    for others, truth, cells in list(cases(table, 2, whole_model=True))[::10]:
        wanted = [place for place in truth if place not in cells]
        for estimate, off in errors.items():
            rates = estimate(table, others, {cell: truth[cell] for cell in cells}, wanted)
            off.extend(np.abs(rates / np.array([truth[place] for place in wanted]) - 1).tolist())
    assert median(errors[by_completion]) < 2 / 3 * median(errors[by_specification])
