"""Parts of `benchmarks.fidelity` that need no live service."""

import json
import os
import subprocess
import sys

from benchmarks.fidelity_figures import breakdown, live_figures, table
from benchmarks.fidelity_jobs import PROGRAM, fidelity_jobs, spec_of, write_trace
from simulation.traces.motley_csv import read_motley_csv


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
