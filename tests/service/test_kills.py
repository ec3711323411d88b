"""Any process may be killed at any moment: no job is lost or run twice, no GPU double-booked, nothing left behind."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.deployment import ROOT, kill_all, wait_for
from tests.service.running_service import Service
from tests.service_lab import UNTIL_LET_GO

KILLS = [(0.3, 0.9, 1.4), pytest.param((0.1, 0.7, 1.1, 0.5, 1.3, 0.2), marks=pytest.mark.thorough)]


@pytest.mark.parametrize("pauses_s", KILLS, ids=["3", "6"])
def test_jobs_finish_once_though_the_scheduler_is_killed_again_and_again(
    four_gpus: Service, pauses_s: tuple[float, ...]
) -> None:
    jobs = [four_gpus.sample(name=f"job-{n}", steps=100, rate=25, gpus=1 + n % 2) for n in range(2 * len(pauses_s))]
    for pause_s in pauses_s:  # anywhere in a round
        scheduler = wait_for("a scheduler works", four_gpus.schedulers)
        time.sleep(pause_s)
        kill_all(scheduler)
    for job in jobs:
        four_gpus.wait_for_state(job, "succeeded")
        assert four_gpus.trace(job) == list(range(1, 101))
    assert four_gpus.overlaps() == 0


def test_a_cancel_is_obeyed_while_a_round_is_being_decided(four_gpus: Service) -> None:
    job = four_gpus.submit("sleep 600")
    four_gpus.wait_for_state(job, "running")
    (deciding,) = wait_for("a process decides", lambda: four_gpus.processes("motley-rounds"))
    wait_for("it stands still outside of a transaction", lambda: stopped_without_a_lock(four_gpus, deciding))
    four_gpus.client.cancel(job)
    four_gpus.wait_for_state(job, "cancelled")
    os.kill(deciding, signal.SIGCONT)


def stopped_without_a_lock(service: Service, process: int) -> bool:
    """Stop the process as a solver that takes very long would; let it go on if it holds the lock of SQLite."""
    os.kill(process, signal.SIGSTOP)
    database = sqlite3.connect(service.var / "motley.sqlite3", timeout=1, isolation_level=None)
    try:
        database.execute("BEGIN IMMEDIATE")
        database.execute("ROLLBACK")
    except sqlite3.OperationalError:
        os.kill(process, signal.SIGCONT)
        return False
    finally:
        database.close()
    return True


def test_a_killed_service_finds_its_running_jobs_again(four_gpus: Service) -> None:
    jobs = [four_gpus.sample(name=f"job-{n}", steps=300, rate=30) for n in range(2)]
    for job in jobs:
        four_gpus.wait_for_state(job, "running")
    four_gpus.kill()
    four_gpus.start()
    for job in jobs:
        done = four_gpus.wait_for_state(job, "succeeded")
        assert len(done["attempts"]) == 1
        assert four_gpus.trace(job) == list(range(1, 301))
    wait_for("nothing of the jobs is left", lambda: not four_gpus.job_processes())


def test_ctrl_c_stops_the_service_and_leaves_the_jobs_running(four_gpus: Service) -> None:
    job = four_gpus.submit(UNTIL_LET_GO)
    four_gpus.wait_for_state(job, "running")
    four_gpus.stop()
    assert not four_gpus.service_processes()
    assert four_gpus.job_processes()
    four_gpus.start()
    four_gpus.let_go(job)
    assert len(four_gpus.wait_for_state(job, "succeeded")["attempts"]) == 1


def test_a_job_whose_supervisor_is_killed_runs_again_to_its_end(four_gpus: Service) -> None:
    job = four_gpus.sample(steps=200, rate=40)
    wait_for("a checkpoint is there", lambda: four_gpus.client.job(job)["progress"]["step"] > 60)
    kill_all(_supervisors(four_gpus))
    done = four_gpus.wait_for_state(job, "succeeded")

    assert [attempt["outcome"] for attempt in done["attempts"]] == ["lost", "succeeded"]
    assert set(four_gpus.trace(job)) == set(range(1, 201))
    wait_for("nothing of the job is left", lambda: not four_gpus.job_processes())


ESCAPES = "(setsid sh -c 'sleep 1000 & sleep 1000' >/dev/null 2>&1 &) ; setsid -f sleep 1000 ; echo ready; sleep 1000"


@pytest.mark.parametrize("end", ["cancel", "kill the supervisor"])
def test_grandchildren_that_left_the_session_are_gone_too(four_gpus: Service, end: str) -> None:
    job = four_gpus.submit(ESCAPES, checkpoint={"grace_seconds": 1})
    wait_for("it has spawned them", lambda: four_gpus.client.logs(job).data == b"ready\n")
    if end == "cancel":
        four_gpus.client.cancel(job)
        four_gpus.wait_for_state(job, "cancelled")
    else:
        kill_all(_supervisors(four_gpus))
        wait_for("the loss is noticed", lambda: four_gpus.client.job(job)["attempts"][0]["outcome"] == "lost")
        four_gpus.client.cancel(job)
        four_gpus.wait_for_state(job, "cancelled")
    wait_for("no process of the job is left", lambda: not four_gpus.job_processes())


def test_of_two_schedulers_one_works_and_one_waits(service: Service) -> None:
    service.declare(a100=1)
    holders = "from scheduler_app.models import SchedulerLease as L\nanswer = [one.holder for one in L.objects.all()]"
    first = wait_for("both loops of the first work", lambda: len(found := service.python(holders)) == 2 and found)
    command = [sys.executable, str(ROOT / "manage.py"), "schedule"]
    second = subprocess.Popen(command, env=service.environment, cwd=ROOT, stderr=subprocess.DEVNULL)
    try:
        job = service.submit("echo done")
        service.wait_for_state(job, "succeeded")
        assert service.python(holders) == first
        service.stop()
        wait_for("the second takes over", lambda: not {*service.python(holders)} & {*first})
        assert second.poll() is None
    finally:
        second.terminate()
        second.wait()


def _supervisors(service: Service) -> list[int]:
    return [
        pid
        for pid in service.job_processes()
        if b"engines.supervision.supervisor" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]
