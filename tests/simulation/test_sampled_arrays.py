"""The simulator learns in space: pilots of arrays run first, and tell how long the other tasks take."""

from math import inf
from pathlib import Path

import numpy as np
import pytest

from allocation.policies import POLICIES
from estimation.durations import DurationHistory, JobTraits
from simulation.clock.run import Simulation
from simulation.clock.sampled_arrays import SampledArrays
from simulation.clock.state import State
from simulation.cluster import Cluster
from simulation.rules.service import ServiceRules
from simulation.scenario.array_generator import GOOGLE_2011, ArrayOptions, generate_arrays
from simulation.scenario.scenario import Scenario
from simulation.scenario.setting import begin
from simulation.traces.trace import Program, Trace, TraceJob
from simulation.workloads.rate_sources import BySpeed

CLUSTER = Cluster.parse("v100=1x2")


def tasks(array: str, arrival_s: float, *durations_s: float) -> list[TraceJob]:
    facts = {"program": Program(array), "declared_length": inf, "team": "a", "array": array, "gangs": (1,)}
    return [
        TraceJob(name=f"{array}{i}", arrival_s=arrival_s, duration_s=seconds, **facts)
        for i, seconds in enumerate(durations_s)
    ]


def started(*, sampled: bool) -> tuple[State, Simulation]:
    """Two GPUs; a long and a short array come, of which history says the opposite."""
    trace = Trace.of([*tasks("long", 0, *[1000] * 6), *tasks("short", 0, *[100] * 6)])
    rounds = ServiceRules(CLUSTER, POLICIES["slearn"], 1e6, event_delay_s=0.0)
    state = begin(trace, CLUSTER, BySpeed(), rounds, None)
    team = int(state.jobs.team[0])
    state.durations = DurationHistory.of([(JobTraits(team, "long", 1), 200), (JobTraits(team, "short", 1), 500)] * 3)
    state.arrays = SampledArrays.of(state.jobs, sampled=sampled)
    return state, Simulation(state, rounds)


def ends(state: State, array: int) -> float:
    return float(state.finish_s[state.jobs.array == array].max())


def test_pilots_correct_what_history_says_of_arrays() -> None:
    ended = {}
    for sampled in (True, False):
        state, simulation = started(sampled=sampled)
        simulation.run()
        ended[sampled] = [ends(state, 0), ends(state, 1)]
    assert ended[True][1] < ended[False][1]  # the short array is served first once its pilot has told
    assert ended[True][1] < ended[True][0]


def test_the_first_tasks_are_pilots_and_the_others_wait_for_them() -> None:
    state, _ = started(sampled=True)
    state.active = np.arange(12)
    problem = state.problem(np.arange(12))
    assert [int(problem.pilot[rows].sum()) for rows in (slice(6), slice(6, 12))] == [1, 1]
    assert problem.unsampled.sum() == 10
    seconds = problem.remaining_steps / problem.base_rate
    assert seconds.tolist() == pytest.approx([200] * 6 + [500] * 6)
    assert problem.array_others_gpu_s == pytest.approx([1000] * 6 + [2500] * 6)


def test_once_a_pilot_has_ended_the_others_are_as_long_and_count_as_much() -> None:
    state, _ = started(sampled=True)
    state.note_finished(np.array([0]))
    left = np.arange(1, 12)
    problem = state.problem(left)
    assert not problem.pilot[:5].any()
    assert not problem.unsampled[:5].any()
    seconds = problem.remaining_steps[:5] / problem.base_rate[:5]
    assert ((seconds > 200) & (seconds <= 1000)).all()
    assert problem.array_others_gpu_s[:5] == pytest.approx(4 * seconds)


def test_an_array_enters_the_history_once_it_has_ended_by_its_mean() -> None:
    state, _ = started(sampled=True)
    assert state.arrays is not None
    assert list(state.arrays.note_finished(np.arange(5))) == []
    ((traits, seconds),) = state.arrays.note_finished(np.array([5]))
    assert (traits.name, seconds) == ("long", pytest.approx(1000))


def test_generated_arrays_have_the_published_widths_and_durations() -> None:
    options = ArrayOptions(arrays=20_000, gpus=64, load=0.9, history_spread=0.3, task_spread=0.3, workloads=5_000)
    first, again = (
        generate_arrays(GOOGLE_2011, options, workloads=np.random.default_rng(0), rng=np.random.default_rng(1))
        for _ in range(2)
    )
    widths = np.array([len(of_array) for of_array in first.durations])
    assert (widths == 1).mean() == pytest.approx(GOOGLE_2011.single, abs=0.02)
    assert widths.mean() == pytest.approx(GOOGLE_2011.mean_tasks, rel=0.05)
    means = np.array([of_array.mean() for of_array in first.durations])
    assert np.median(means) == pytest.approx(GOOGLE_2011.median_s, rel=0.15)
    assert (means <= GOOGLE_2011.high_s).mean() == pytest.approx(GOOGLE_2011.high, abs=0.02)
    assert all(np.array_equal(a, b) for a, b in zip(first.durations, again.durations, strict=True))


def test_the_command_learns_from_the_arrays_of_a_trace(tmp_path: Path) -> None:
    lines = [f"{job.name},0,1,{job.duration_s:g},none,{job.array},{job.array}" for job in tasks("sweep", 0, *[600] * 5)]
    trace = tmp_path / "trace.csv"
    trace.write_text("\n".join(["name,arrival_s,gpus,duration_s,declared_length,array,workload", *lines]))
    scenario = Scenario(cluster="v100=1x2", format_name="csv", estimate_lengths=True)
    state = scenario.prepare(trace, "slearn", seed=0).simulation.run()
    assert state.arrays is not None
    assert state.arrays.told[0].mean == pytest.approx(600)
