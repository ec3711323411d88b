"""What is kept of a run for its charts is what happened in it."""

import numpy as np
import pytest

from simulation.results.timeline import TimelineRecorder, sampled_rows
from simulation.scenario.scenario import Scenario

JOBS = "".join(f"job-{i},{97 * i},{1 + i % 4},{600 + 311 * i}\n" for i in range(40))


@pytest.fixture(scope="module", params=["fifo", "srtf", "max_min_fairness"])
def recorded(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("recorded") / "trace.csv"
    path.write_text("name,arrival_s,gpus,duration_s\n" + JOBS)
    scenario = Scenario(format_name="csv", cluster="v100=2x4,t4=1x4", restart_s=30)
    run = scenario.prepare(path, request.param, seed=0)
    recording = TimelineRecorder(run.simulation.state.jobs, sampled_rows(run.simulation.state.jobs))
    run.finish(recording.see)
    return run.simulation.state, recording


def test_the_curve_of_use_holds_every_gpu_second(recorded):
    state, recording = recorded
    edges_s = np.linspace(0, np.nanmax(state.finish_s), 123)
    assert (recording.busy(edges_s) * np.diff(edges_s)).sum(axis=1) == pytest.approx(state.busy_gpu_s)
    assert (state.capacity + 1e-6 >= recording.busy(edges_s).T).all()


def test_the_spans_of_a_job_are_the_time_that_it_ran(recorded):
    state, recording = recorded
    ran_s = np.zeros(len(state.jobs.names))
    for span in recording.spans(1e-9, most=10**6):
        ran_s[span.row] += span.ended_s - span.began_s
    assert ran_s == pytest.approx(state.running_s)


def test_where_spans_are_too_many_breaks_are_left_out_and_nothing_else(recorded):
    state, recording = recorded
    whole_s = float(np.nanmax(state.finish_s))
    few = recording.spans(whole_s, most=60)
    assert {span.row for span in few} == set(range(40))
    for row in range(40):
        mine = [span for span in few if span.row == row]
        assert min(span.began_s for span in mine) >= state.jobs.arrival_s[row]
        assert max(span.ended_s for span in mine) == pytest.approx(state.finish_s[row])
    assert len(few) <= len(recording.spans(whole_s, most=10**6))
