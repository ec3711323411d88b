"""The CPU curve of a workload by measured rates, and what is tried next."""

from hypothesis import given
from hypothesis import strategies as st

from estimation.cpu_curve import CpuSample, cpu_curve, with_next_trial

SAMPLES = st.builds(CpuSample, st.integers(1, 64), st.sampled_from([0, 32]), st.floats(0, 1e6), st.integers(0, 20))


def sample(cpus: int, rate: float, *, batch: int = 0, reports: int = 10) -> CpuSample:
    return CpuSample(cpus, batch, rate, reports)


def test_rates_that_differ_by_less_than_a_tenth_are_one_level() -> None:
    assert cpu_curve([sample(6, 2.0), sample(3, 1.0), sample(12, 2.1), sample(24, 2.05)]) == {3: 1, 6: 2, 12: 2, 24: 2}


def test_a_rate_with_few_reports_is_no_point() -> None:
    assert cpu_curve([sample(3, 1.0), sample(6, 9.0, reports=9)]) == {3: 1}


def test_rates_of_another_batch_size_are_not_compared() -> None:
    assert cpu_curve([sample(3, 1.0, batch=32), sample(6, 5.0, batch=64, reports=12), sample(6, 1.5, batch=32)]) == {
        3: 1,
        6: 1.5,
    }


def test_nothing_is_tried_before_the_first_rate_is_known() -> None:
    assert with_next_trial(cpu_curve([])) == {}


def test_the_double_is_tried_until_it_gains_nothing() -> None:
    assert with_next_trial({3: 1.0}) == {3: 1.0, 6: 2.0}
    assert with_next_trial({3: 1.0, 6: 1.5}) == {3: 1.0, 6: 1.5, 12: 3.0}
    assert with_next_trial({3: 1.0, 6: 1.0}) == {3: 1.0, 6: 1.0}


@given(st.lists(SAMPLES, max_size=12, unique_by=lambda one: (one.cpus_per_gpu, one.batch_size)))
def test_a_curve_never_falls(samples: list[CpuSample]) -> None:
    curve = with_next_trial(cpu_curve(samples))
    rates = [curve[cpus] for cpus in sorted(curve)]
    assert rates == sorted(rates)
    assert all(rate > 0 for rate in rates)
