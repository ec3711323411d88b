"""Parts of `benchmarks.fidelity` that need no live service."""

import json
import os
import subprocess
import sys

import pytest

from benchmarks import paced_training
from benchmarks.fidelity_figures import breakdown, live_figures, table
from benchmarks.fidelity_jobs import PROGRAM, fidelity_jobs, spec_of, write_trace
from benchmarks.fidelity_training import TRUTHS, training_jobs, training_spec, write_recordings, write_training_trace
from motley_client.batch_scaling import BatchShare
from simulation.scenario.scenario import Scenario
from simulation.traces.motley_csv import read_motley_csv
from simulation.traces.sia import read_sia
from simulation.workloads.applications import ApplicationProfiles


def at(seconds):
    return f"2026-11-22T12:00:{seconds:06.3f}Z"


def attempt(number, decided, **moments):
    names = ("claimed_at", "launched_at", "started_at", "first_step_at", "step_at", "stopping_at", "ended_at")
    told = {name: at(moments[name]) if name in moments else None for name in names}
    return {"number": number, "round_number": decided, "outcome": "", **told}


RECORD = {
    "rounds": [{"number": 1, "started_at": at(1)}, {"number": 2, "started_at": at(6)}],
    "jobs": [
        {
            "created_at": at(0.5),
            "finished_at": at(20),
            "attempts": [
                attempt(1, 1, started_at=2, first_step_at=4.5, stopping_at=6, ended_at=6.2) | {"outcome": "preempted"},
                attempt(2, 2, started_at=7, first_step_at=9, step_at=19.5, ended_at=20) | {"outcome": "succeeded"},
            ],
        },
        {"created_at": at(2), "finished_at": at(10.5), "attempts": [attempt(1, 2), attempt(2, 2, started_at=7)]},
    ],
}


def test_figures_are_those_of_jobs_and_of_attempts_that_began():
    assert live_figures(RECORD) == {"mean_jct_s": 14, "median_jct_s": 14, "makespan_s": 19.5, "restarts": 0.5}


def test_the_breakdown_has_the_seconds_between_the_moments_that_rest_tells():
    rows = {
        words: cells
        for words, *cells in (
            [cell.strip() for cell in line.split("|")[1:-1]] for line in breakdown(RECORD) if "|" in line
        )
    }
    assert rows["arrival to next round"] == ["2", "2.25", "2.25", "3.65"]
    assert rows["round to first step, first attempts"][:2] == ["1", "3.50"]
    assert rows["round to first step, restarts"][:2] == ["1", "3.00"]
    assert rows["preemption to end"][:2] == ["1", "0.20"]
    assert rows["last step to end"][:2] == ["1", "0.50"]
    assert "claim to launch, restarts" not in rows


def test_the_table_has_the_difference_of_each_simulation():
    live = live_figures(RECORD)
    faster = {name: value / 2 for name, value in live.items()}
    lines = list(table("motley", live, {"as it is": live, "faster": faster}))
    assert lines[2] == "| mean JCT, s | 14.00 | 14.00 | +0.0% | 7.00 | -50.0% |"
    assert len({line.count("|") for line in lines}) == 1


def test_the_job_resumes_and_does_each_step_once(tmp_path):
    told = json.dumps({"steps": 40, "set_up_s": 0, "rates": {"a100": 400.0}})
    (tmp_path / "step").write_text("20")
    environment = {"MOTLEY_GPU_TYPE": "a100", "MOTLEY_RESUME": "1", "MOTLEY_CHECKPOINT_DIR": str(tmp_path)}
    environment |= {"MOTLEY_PROGRESS": str(tmp_path / "progress")}
    subprocess.run([sys.executable, "-c", PROGRAM.read_text(), told], env=os.environ | environment, check=True)
    steps = [json.loads(line)["step"] for line in (tmp_path / "progress").read_text().splitlines()]
    assert (steps[0], steps[-1], (tmp_path / "step").read_text()) == (20, 40, "40")


def test_the_trace_has_the_jobs_that_the_service_is_given(tmp_path):
    jobs = fidelity_jobs(12, within_s=60, seed=3)
    trace, rates = write_trace(jobs, tmp_path)
    read = read_motley_csv(trace.read_text().splitlines()).jobs
    specs = [spec_of(job, set_up_s=2, restore_s=3) for job in jobs]
    assert [(job.name, job.gangs[0], job.total_steps, job.team) for job in read] == [
        (spec["name"], spec["gpus"], spec["total_steps"], spec["team"]) for spec in specs
    ]
    key, known = f"('{specs[0]['workload']}', {specs[0]['gpus']})", json.loads(rates.read_text())
    assert {kind: known[kind][key]["null"] for kind in known} == specs[0]["rates"]


def test_the_trainings_of_the_service_take_the_times_that_are_recorded_for_the_simulator(tmp_path, monkeypatch):
    profiles = ApplicationProfiles(write_recordings(tmp_path, restart_s=3))
    jobs = {job.program.workload: job for job in training_jobs(30, within_s=60, seed=0)}
    assert jobs.keys() == TRUTHS.keys()
    for name, job in jobs.items():
        told = json.loads(training_spec(job, set_up_s=2, restore_s=3)["command"][-1])
        application = profiles.application(name)
        assert (application.ends.tolist(), application.course.restart_s) == (told["ends"], 3)
        for gpu_type in told["fixed_s"]:
            unit = told["gpus_per_replica"].get(gpu_type, 1)
            replicas, local = 4 // unit, told["micro_batches"] or told["initial"] // 4
            monkeypatch.setenv("MOTLEY_GPU_TYPE", gpu_type)
            monkeypatch.setenv("MOTLEY_NUM_NODES", "1")
            monkeypatch.setenv("MOTLEY_REPLICAS", str(replicas))
            share = BatchShare(local * replicas, *((local, 1) if told["micro_batches"] else (1, local)))
            step_s, _ = application.times(gpu_type).at((4,), local)
            assert paced_training.step_seconds(share, told) == pytest.approx(step_s)


def test_a_training_resumes_and_reports_the_step_at_which_it_would_be_done(tmp_path):
    told = {"set_up_s": 0, "initial": 64, "micro_batches": 0, "gpus_per_replica": {}, "fixed_s": {"a100": 0.001}}
    told |= {"sample_s": {"a100": 0.0}, "averaging_s": [0, 0], "ends": [100, 200], "noise_scale": [64, 192]}
    (tmp_path / "done").write_text("[60, 90.0]")
    environment = {"MOTLEY_GPU_TYPE": "a100", "MOTLEY_RESUME": "1", "MOTLEY_CHECKPOINT_DIR": str(tmp_path)}
    environment |= {"MOTLEY_PROGRESS": str(tmp_path / "progress"), "MOTLEY_NODE_RANK": "0", "MOTLEY_NUM_NODES": "1"}
    environment |= {"MOTLEY_REPLICAS": "1", "MOTLEY_BATCH_SIZE": "128"}
    program = paced_training.__file__
    subprocess.run([sys.executable, program, json.dumps(told)], env=os.environ | environment, check=True)
    first, second = [json.loads(line) for line in (tmp_path / "progress").read_text().splitlines()][:2]
    assert (first["step"], first["total_steps"], first["grad_var"]) == (60, 60 + 83, 0.5)  # 110 left, each worth 4/3
    assert (second["step"], second["total_steps"]) == (68, 68 + 63)  # 100 left, each worth 8/5
    assert json.loads((tmp_path / "done").read_text()) == [131, 200]


def test_the_trace_of_trainings_has_the_categories_of_the_jobs(tmp_path):
    jobs = training_jobs(12, within_s=60, seed=3)
    read = read_sia(write_training_trace(jobs, tmp_path).read_text().splitlines()).jobs
    assert [job.name for job in read] == [job.name for job in jobs]
    assert [job.program.tuned for job in read] == [
        "batch_size" in training_spec(job, set_up_s=0, restore_s=0) for job in jobs
    ]


def test_the_end_of_a_training_causes_a_round(tmp_path):
    """Two jobs of 240 steps on the only GPU, which take 0.69 s each: the second does not wait for the next round."""
    trace = tmp_path / "trace.csv"
    trace.write_text("name,time,application,num_replicas,batch_size,category\n")
    with trace.open("a") as lines:
        lines.writelines(f"job-{n},0,detection,1,64,rigid\n" for n in range(2))
    ends = {}
    for delay_s in (None, 1.0):
        scenario = Scenario(
            format_name="sia",
            cluster="t4=1x1",
            profiles=write_recordings(tmp_path / str(delay_s), restart_s=3),
            knowledge="service",
            rules="service",
            round_s=1000,
            event_delay_s=delay_s,
        )
        run = scenario.prepare(trace, "fifo", seed=0)
        run.finish(lambda _: None)
        ends[delay_s] = run.simulation.state.finish_s.tolist()
    assert ends == {None: [166, 1166], 1.0: [166, 1 + 166 + 166]}
