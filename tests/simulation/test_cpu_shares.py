"""CPUs shared out by jobs' CPU curves: nobody is slower than with the proportional share, and OPT bounds TUNE."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulation.rules.cpu_shares import CpuRule, CpuShares
from simulation.rules.service import ServiceRules
from simulation.scenario.scenario import Scenario
from simulation.traces.motley_csv import read_motley_csv, write_motley_csv
from simulation.traces.trace import InvalidTrace, Program
from tests.hypothesis_examples import examples

CPUS = 3.0
HUNGRY = {"1": 0.3, "3": 1, "6": 1.75, "12": 2.9}
HEADER = "name,arrival_s,gpus,duration_s,cpu_curve"


def line(name: str, gpus: int, curve: dict[str, float] | None) -> str:
    quoted = json.dumps(curve).replace('"', '""') if curve else ""
    return f'{name},0,{gpus},3600,"{quoted}"'


@pytest.fixture
def hours(tmp_path: Path):
    """Hours to completion by job, with a rule, on a node of eight GPUs and 24 CPUs."""
    trace = tmp_path / "trace.csv"
    jobs = [line("hungry", 1, HUNGRY), line("second", 1, HUNGRY), *(line(f"modest-{i}", 1, None) for i in range(6))]
    trace.write_text("\n".join([HEADER, *jobs, ""]))

    def run(rule: str) -> dict[str, float]:
        scenario = Scenario(format_name="csv", cluster="v100=1x8", round_s=60, cpu_memory=rule, cpus_per_gpu=CPUS)
        prepared = scenario.prepare(trace, "fifo", 0)
        prepared.finish(lambda _: None)
        state = prepared.simulation.state
        return dict(zip(state.jobs.names, (state.finish_s / 3600).tolist(), strict=True))

    return run


def test_hungry_jobs_have_what_modest_ones_leave_and_nobody_is_later(hours) -> None:
    proportional, tuned, optimal = (hours(rule) for rule in CpuRule)
    first, second = sorted([tuned["hungry"], tuned["second"]])
    assert first == pytest.approx(1 / 2.9, rel=0.05)  # one has the CPUs at once, the other when it has ended
    assert second == pytest.approx(first + (1 - first) / 2.9, rel=0.05)
    assert all(tuned[job] <= proportional[job] for job in proportional)
    assert sum(optimal.values()) <= sum(tuned.values())


def test_hungry_jobs_are_spread_among_modest_ones_by_the_placement_of_rounds(tmp_path: Path) -> None:
    """On two nodes of two GPUs and six CPUs; by their GPUs alone both hungry ones are on the first."""
    trace, hungry = tmp_path / "trace.csv", {"1": 0.3, "3": 1, "5": 1.6}
    jobs = [*(line(f"hungry-{i}", 1, hungry) for i in range(2)), *(line(f"modest-{i}", 1, None) for i in range(2))]
    trace.write_text("\n".join([HEADER, *jobs, ""]))
    hours = {}
    for places in (False, True):
        scenario = Scenario(format_name="csv", cluster="v100=2x2", round_s=60, cpu_memory="tune", cpus_per_gpu=CPUS)
        ready = scenario.prepare(trace, "fifo", 0)
        rules = ready.simulation.rounds
        assert isinstance(rules, ServiceRules)
        rules.cpu_shares = CpuShares(CpuRule.TUNE, CPUS, places=places)
        ready.finish(lambda _: None)
        hours[places] = (ready.simulation.state.finish_s / 3600).tolist()
    assert hours[False][:2] == pytest.approx([1, 1])
    assert hours[True][:2] == pytest.approx([1 / 1.6, 1 / 1.6], rel=0.03)
    assert hours[True][2:] == pytest.approx([1, 1])


Curve = tuple[tuple[int, float], ...]
curves = st.lists(st.floats(0.1, 10), min_size=1, max_size=5).map(
    lambda rates: tuple((2**i, rate) for i, rate in enumerate(sorted(rates)))
)


@examples(30)
@given(st.lists(curves, min_size=2, max_size=8), st.integers(1, 12))
def test_no_job_is_slower_than_with_its_proportional_share(
    drawn: list[tuple[tuple[int, float], ...]], cpus: int
) -> None:
    programs = [Program(cpu_curve=curve) for curve in drawn]
    gpus, node_gpus = np.array([[1, 0] if i % 2 else [0, 1] for i in range(len(drawn))]), np.array([4, 4])
    tuned, optimal = (CpuShares(rule, cpus).speeds(programs, gpus, node_gpus) for rule in (CpuRule.TUNE, CpuRule.OPT))
    assert (tuned >= 1 - 1e-6).all()
    assert (optimal >= 1 - 1e-6).all()


def test_a_curve_is_checked_and_written_as_it_was_read() -> None:
    text = "\n".join([HEADER, line("one", 1, HUNGRY), ""])
    jobs = read_motley_csv(text.splitlines()).jobs
    assert read_motley_csv("".join(write_motley_csv(jobs)).splitlines()).jobs == jobs
    with pytest.raises(InvalidTrace, match="cpu_curve must be of one CPU or more, and positive numbers"):
        read_motley_csv([HEADER, line("one", 1, {"0": 1})])
