"""An elastic job grows and shrinks while it runs, and loses no step by it."""

from pathlib import Path
from typing import Any

import pytest

from jobs_app.models import Job
from tests.service_lab import UNTIL_LET_GO, Lab

TRAINING = """
import json, os, sys, time
from motley_client.training import EXIT_REQUEUE, checkpoint_dir, progress, resume, save_atomically, should_stop

should_stop()
saved, step = checkpoint_dir() / "state.json", 0
if resume() and saved.exists():
    step = json.loads(saved.read_text())
with open("trace.txt", "a", buffering=1) as trace:
    while not (checkpoint_dir() / "go").exists() and not should_stop():
        step += 1
        trace.write(f"{step}\\n")
        progress(step)
        time.sleep(1 / float(os.environ["MOTLEY_EMULATED_RATE"]))
save_atomically(saved, lambda file: file.write(json.dumps(step).encode()))
sys.exit(EXIT_REQUEUE if should_stop() else 0)
"""
"""At the pace of its GPUs until it is let go; it saves when it is told to stop, and notes each step that it does."""

ELASTIC: dict[str, Any] = {"name": "elastic", "gpus": {"min": 1, "max": 4}, "rates": {"a100": {1: 10, 2: 18, 4: 30}}}


@pytest.fixture(params=["max_min_fairness", "sia"])
def elastic(request: pytest.FixtureRequest, lab: Lab, job_python: Path) -> Job:
    """On a node of four GPUs, beside three jobs of one GPU each; under a policy of shares, and under one of picks."""
    lab.policy(request.param, **({"waiting": 2.0} if request.param == "sia" else {}))
    lab.node("n1", gpus=4)
    for n in range(3):
        lab.submit(UNTIL_LET_GO, name=f"first-{n}", rates={"a100": 10})
    return lab.submit(["python", "-c", TRAINING], **ELASTIC)


def trains_on(lab: Lab, job: Job, gpus: int) -> None:
    """Wait until it has made progress on so many GPUs."""

    def reached() -> bool:
        job.refresh_from_db()
        assert not job.is_final, f"{job} is {job.state}: {job.message}"
        latest = lab.attempts(job)[-1:]
        return any(attempt.gpu_count == gpus and attempt.reports > 5 for attempt in latest)

    lab.until(reached)


def trace(lab: Lab, job: Job) -> list[int]:
    return [int(line) for line in (lab.root / "jobs" / str(job.pk) / "work" / "trace.txt").read_text().split()]


def test_it_goes_from_one_gpu_to_four_and_back_and_does_every_step_once(lab: Lab, elastic: Job) -> None:
    trains_on(lab, elastic, 1)
    lab.let_go(*Job.objects.filter(name__startswith="first"))
    trains_on(lab, elastic, 4)
    others = [lab.submit(UNTIL_LET_GO, name=f"second-{n}", rates={"a100": 10}) for n in range(3)]
    trains_on(lab, elastic, 1)
    lab.running(*others)
    lab.let_go(elastic)
    done = lab.until_state(elastic, Job.State.SUCCEEDED)

    sizes = [attempt.gpu_count for attempt in lab.attempts(elastic)]
    steps = trace(lab, elastic)
    assert (sizes[0], max(sizes), sizes[-1]) == (1, 4, 1)
    assert steps == list(range(1, len(steps) + 1))
    assert done.step == len(steps)


def test_growing_is_told_as_a_move(lab: Lab, elastic: Job) -> None:
    trains_on(lab, elastic, 1)
    lab.let_go(*Job.objects.filter(name__startswith="first"))
    trains_on(lab, elastic, 4)
    moved = [attempt.stop_note for attempt in lab.attempts(elastic)[:-1]]
    assert moved[-1] == "to 4 x A100"
