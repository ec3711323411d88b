"""A job knows when its checkpoints pay: from its nodes, from what they cost before, and on its page."""

from datetime import timedelta
from pathlib import Path

import pytest

from cluster_app.models import Node, NodeInterval
from cluster_app.services import drain
from jobs_app.models import Attempt, Job
from scheduler_app.round.node_lifetimes import USUAL
from tests.service_lab import Lab

SPOT = Node.CapacityType.SPOT
STAY = ("MOTLEY_MEAN_UP_SECONDS", "MOTLEY_NOTIFIED", "MOTLEY_NOTICE_SECONDS")
SAVES_ONCE = """
import os, sys, time
from motley_client.training import checkpoint_dir, progress, save_atomically, should_stop
for name in sorted(os.environ):
    print(name, os.environ[name], sep="=", flush=True)
should_stop()
progress(1)
save_atomically(checkpoint_dir() / "last", lambda file: time.sleep(0.02))
progress(2)
while not should_stop():
    time.sleep(0.01)
sys.exit(75)
"""


def told(lab: Lab, job: Job) -> dict[str, float]:
    return {name: float(value) for name, value in lab.environment(job).items() if name in STAY}


def observe(node: Node, lab: Lab, *, losses: int, up: timedelta, announced: int = 0) -> None:
    """So many times it was up that long, and went; the first of them with an announcement."""
    End = NodeInterval.End
    for number in range(losses):
        start = lab.now - (losses - number) * 2 * up
        end = End.ANNOUNCED if number < announced else End.CHANGED
        NodeInterval.objects.create(node=node, up=True, started_at=start, ended_at=start + up, end=end)


def test_a_job_is_told_how_long_nodes_of_that_kind_stay(lab: Lab) -> None:
    lab.node("n1")
    Node.objects.update(capacity_type=SPOT, notice_s=120)
    job = lab.until_state(lab.submit("env"), Job.State.SUCCEEDED)
    assert told(lab, job) == pytest.approx(dict(zip(STAY, (USUAL[SPOT].mean_up_s, 0, 120), strict=True)), rel=0.01)


def test_a_gang_is_told_when_the_first_of_its_nodes_is_expected_to_go(lab: Lab) -> None:
    for name in ("n1", "n2"):
        observe(lab.node(name), lab, losses=99, up=timedelta(hours=1), announced=50)
    Node.objects.update(capacity_type=SPOT)
    job = lab.until_state(lab.submit("env", gpus=4), Job.State.SUCCEEDED)
    assert lab.attempts(job)[0].nodes == ["n1", "n2"]
    assert told(lab, job)["MOTLEY_MEAN_UP_SECONDS"] == pytest.approx(1800, rel=0.1)
    assert told(lab, job)["MOTLEY_NOTIFIED"] == pytest.approx(0.5, abs=0.02)


def test_what_a_checkpoint_took_is_measured_and_told_to_the_next_attempt(lab: Lab, job_python: Path) -> None:
    node = lab.node("n1")
    job = lab.submit(["python", "-c", SAVES_ONCE])
    lab.until(lambda: lab.attempts(job) and lab.attempts(job)[0].checkpoint_s is not None)
    (first,) = lab.attempts(job)
    assert 0.02 <= first.checkpoint_s < 60
    assert first.started_at <= first.checkpoint_at <= lab.now
    Job.objects.filter(pk=job.pk).update(grace_s=60)
    lab.node("n2")
    drain(node, reason="taken back", actor=None)
    lab.until(lambda: job.attempts.filter(number=2, state=Attempt.State.RUNNING).exists())
    lab.until(lambda: "MOTLEY_CHECKPOINT_SECONDS" in lab.environment(job))
    assert float(lab.environment(job)["MOTLEY_CHECKPOINT_SECONDS"]) == pytest.approx(first.checkpoint_s, rel=1e-3)
