"""A full disk is the node's fault: no job fails by it, and all goes on when there is space again."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster_app.models import Node
from engines.supervision.disk import LEAST_FREE_BYTES
from jobs_app.lifecycle.commands import cancel_job
from jobs_app.models import Job
from scheduler_app.round.dispatch import dispatch
from scheduler_app.round.lease import acquire_lease
from scheduler_app.round.run_round import run_round
from tests.deployment import wait_for
from tests.service_lab import UNTIL_LET_GO, Lab

SIZE = 2 * LEAST_FREE_BYTES


@pytest.fixture
def engine_root(engine_root: Path) -> Iterator[Path]:
    """The engine's folder, on a small disk of its own."""
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE},mode=0711", "tmpfs", str(engine_root)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("mounting a file system takes root")
    yield engine_root
    subprocess.run(["umount", "-l", str(engine_root)], check=True)


def fill(folder: Path) -> Path:
    """Take all space of the disk."""
    filler = folder / "filler"
    with filler.open("wb") as file:
        try:
            while True:
                file.write(bytes(2**16))
                file.flush()
        except OSError:
            return filler


def test_jobs_wait_while_the_disk_is_full_and_run_when_it_is_not(lab: Lab) -> None:
    lab.node("n1")
    lab.tick()
    filler = fill(lab.root)
    jobs = [lab.submit() for _ in range(3)]
    lab.until(lambda: Node.objects.exclude(engine_reason="").exists())
    for _ in range(3):
        lab.round()
    assert "is full: " in Node.objects.get().engine_reason
    assert {(job.state, job.attempts.count()) for job in Job.objects.all()} == {(Job.State.QUEUED, 0)}

    filler.unlink()
    for job in jobs:
        lab.until_state(job, Job.State.SUCCEEDED)


def test_a_launch_that_finds_the_disk_full_counts_as_no_loss(lab: Lab) -> None:
    lab.node("n1")
    lab.tick()
    job = lab.submit(UNTIL_LET_GO)
    acquire_lease("lab", lab.now)
    run_round("lab", lab.now)
    filler = fill(lab.root)
    dispatch(lab.fence, lab.now)
    filler.unlink()
    job.refresh_from_db()
    assert (job.state, job.losses, job.failures) == (Job.State.QUEUED, 0, 0)
    assert "may start again at" in job.message
    lab.running(job)


FILLS = """
n=0
while :; do n=$((n+1)); cat /dev/zero >fill-$n 2>/dev/null; sleep 0.05; done
"""


def is_full(folder: Path) -> bool:
    disk = os.statvfs(folder)
    return disk.f_bavail == 0


def test_a_job_that_fills_the_disk_fails_no_other_and_can_be_cancelled(lab: Lab) -> None:
    for name in ("n1", "n2"):
        lab.node(name, gpus=1)
    other = lab.submit(f"{UNTIL_LET_GO}; echo at the end")
    hog = lab.submit(FILLS)
    lab.running(other, hog)
    lab.until(lambda: is_full(lab.root))

    lab.let_go(other)
    lab.until_state(other, Job.State.SUCCEEDED)
    waiting = lab.submit("echo it runs")
    lab.until(lambda: Node.objects.exclude(engine_reason="").count() == 2)
    wait_for("what the other job has left free is filled", lambda: is_full(lab.root))
    assert lab.attempts(waiting) == []

    cancel_job(hog, actor=None)
    lab.until_state(hog, Job.State.CANCELLED)
    for file in (lab.root / "jobs" / str(hog.pk) / "work").iterdir():
        file.unlink()
    lab.until_state(waiting, Job.State.SUCCEEDED)
    assert lab.output(waiting) == "it runs\n"


TALKS = """
until [ -e "$MOTLEY_CHECKPOINT_DIR/full" ]; do sleep 0.05; done
head -c 100000 /dev/zero | tr '\\0' x
touch "$MOTLEY_CHECKPOINT_DIR/said"
until [ -e "$MOTLEY_CHECKPOINT_DIR/go" ]; do sleep 0.05; done
echo after
"""


def test_a_log_goes_on_when_there_is_space_again(lab: Lab) -> None:
    lab.node("n1")
    job = lab.submit(TALKS)
    lab.running(job)
    filler, checkpoints = fill(lab.root), lab.root / "jobs" / str(job.pk) / "checkpoints"
    (checkpoints / "full").touch()
    lab.until((checkpoints / "said").exists)
    filler.unlink()
    lab.let_go(job)
    lab.until_state(job, Job.State.SUCCEEDED)
    assert lab.output(job).endswith("\n... some output was lost: the disk was full\nafter\n")
