"""One scheduler at a time, and a round that was overtaken writes nothing."""

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest
from django.utils import timezone

from allocation.decision import Decision
from allocation.policies import POLICIES
from allocation.policies.fifo import fifo
from allocation.problem import Problem
from jobs_app.lifecycle.commands import change_job
from jobs_app.models import Attempt, GpuClaim, Job
from jobs_app.submission.changing import read_change
from scheduler_app.errors import LeaseLost
from scheduler_app.models import Round, SchedulerLease
from scheduler_app.round import lease
from scheduler_app.round.lease import LEASE, Loop, acquire_lease, has_ended, holder_name, open_round, release_lease
from scheduler_app.round.tick import tick
from tests.deployment import wait_for
from tests.scheduler.decided_round import Decided
from tests.service_lab import UNTIL_LET_GO, Lab

ROOT = Path(__file__).resolve().parents[2]
A_MOMENT, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)


def test_the_first_to_ask_schedules(lab: Lab) -> None:
    assert tick("one", lab.now)


def test_a_second_scheduler_waits(lab: Lab) -> None:
    tick("one", lab.now)
    assert not tick("two", lab.now)


def test_a_waiting_scheduler_does_nothing(lab: Lab) -> None:
    tick("one", lab.now)
    rounds = Round.objects.count()
    tick("two", lab.now + A_MOMENT)
    assert Round.objects.count() == rounds


def test_the_lease_is_kept_by_ticking(lab: Lab) -> None:
    now = lab.now
    acquire_lease("one", now)
    acquire_lease("one", now + LEASE - A_MOMENT)
    assert not acquire_lease("two", now + LEASE + A_MOMENT)


def test_another_takes_over_when_the_lease_has_run_out(lab: Lab) -> None:
    now = lab.now
    tick("one", now)
    assert tick("two", now + LEASE + A_MOMENT)
    assert not tick("one", now + LEASE + 2 * A_MOMENT)


def test_a_lease_that_was_taken_before_the_clock_was_set_back_is_no_longer_one(lab: Lab) -> None:
    now = lab.now
    acquire_lease("one", now + HOUR)
    assert acquire_lease("two", now)


def test_a_host_whose_clock_is_some_minutes_behind_takes_no_lease(lab: Lab) -> None:
    now = lab.now
    acquire_lease("one", now + 4 * MINUTE)
    assert not acquire_lease("two", now)


def test_a_released_lease_is_taken_at_once(lab: Lab) -> None:
    now = lab.now
    acquire_lease("one", now)
    release_lease("one", now)
    assert acquire_lease("two", now)


def test_a_scheduler_listens_from_the_moment_it_takes_over(lab: Lab) -> None:
    now = lab.now
    acquire_lease("one", now)
    acquire_lease("two", now + 2 * LEASE)
    assert SchedulerLease.objects.get().listening_since == now + 2 * LEASE


def test_a_round_is_not_opened_without_the_lease(lab: Lab) -> None:
    acquire_lease("one", lab.now)
    with pytest.raises(LeaseLost):
        open_round("two", lab.now)


@pytest.fixture
def overtaken(lab: Lab) -> int:
    """The number of a round of `one`, who lost the lease to `two` while deciding on a waiting job."""
    lab.node("n1")
    lab.submit(UNTIL_LET_GO)
    acquire_lease("one", lab.now)
    number = open_round("one", lab.now)
    lab.ahead += 2 * LEASE
    assert acquire_lease("two", lab.now)
    return number


def test_the_commit_of_an_overtaken_round_is_refused(lab: Lab, overtaken: int) -> None:
    with pytest.raises(LeaseLost):
        Decided.now(lab, "one", overtaken).commit(lab)


def test_an_overtaken_round_writes_nothing(lab: Lab, overtaken: int) -> None:
    with pytest.raises(LeaseLost):
        Decided.now(lab, "one", overtaken).commit(lab)
    written = [model.objects.count() for model in (Round, Attempt, GpuClaim)]
    assert (written, Job.objects.get().state) == ([0, 0, 0], Job.State.QUEUED)


def test_an_earlier_round_of_the_same_scheduler_is_refused_too(lab: Lab) -> None:
    lab.node("n1")
    acquire_lease("one", lab.now)
    number = open_round("one", lab.now)
    open_round("one", lab.now)
    with pytest.raises(LeaseLost):
        Decided.now(lab, "one", number).commit(lab)


def test_a_round_that_was_not_overtaken_is_committed(lab: Lab) -> None:
    lab.node("n1")
    lab.submit(UNTIL_LET_GO)
    acquire_lease("one", lab.now)
    Decided.now(lab, "one", open_round("one", lab.now)).commit(lab)
    assert Attempt.objects.get().state == Attempt.State.CLAIMED


@pytest.mark.django_db(transaction=True)
def test_a_solve_that_takes_longer_than_the_lease_is_not_overtaken(
    transactional_db: None, lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(problem: Problem) -> Decision:
        ours = SchedulerLease.objects.get(pk=Loop.ROUNDS)
        wait_for("the lease was renewed, and would have run out otherwise", lambda: _renewed_since(ours))
        assert not acquire_lease("two", ours.expires_at)
        return fifo(problem)

    monkeypatch.setattr(lease, "LEASE", timedelta(seconds=1))
    monkeypatch.setitem(POLICIES, "slow", slow)
    lab.policy("slow")
    lab.node("n1")
    lab.submit()
    assert tick("one", timezone.now())
    assert Round.objects.get().result == Round.Result.COMMITTED


def _renewed_since(before: SchedulerLease) -> bool:
    now = timezone.now()
    return before.expires_at < now < SchedulerLease.objects.get(pk=before.pk).expires_at


# -- a holder that was killed -------------------------------------------------------------------------------------

SAY_YOUR_NAME = """
import django
django.setup()
from scheduler_app.round.lease import holder_name
print(holder_name(), flush=True)
input()
"""


@pytest.fixture
def other_scheduler() -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A process that might schedule, and the name that it would hold the lease under."""
    command = [sys.executable, "-c", SAY_YOUR_NAME]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip(), process
        process.kill()


def test_the_lease_of_a_killed_process_is_taken_at_once(
    lab: Lab, other_scheduler: tuple[str, subprocess.Popen[str]]
) -> None:
    name, process = other_scheduler
    acquire_lease(name, lab.now)
    assert not acquire_lease("two", lab.now)
    process.kill()
    process.wait()
    assert acquire_lease("two", lab.now)


def test_a_zombie_holds_no_lease(lab: Lab, other_scheduler: tuple[str, subprocess.Popen[str]]) -> None:
    name, process = other_scheduler
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # dead, but not waited for
    assert has_ended(name)


def test_of_a_scheduler_elsewhere_nothing_is_concluded() -> None:
    host, _, *rest = holder_name().split(":")
    assert not has_ended(":".join([host, "another.4026531836", *rest]))


def test_a_process_that_got_the_number_of_a_killed_one_is_not_taken_for_it() -> None:
    host, place, pid, _, chance = holder_name().split(":")
    assert has_ended(":".join([host, place, pid, "1", chance]))


def test_every_thread_holds_the_lease_under_a_name_of_its_own() -> None:
    with ThreadPoolExecutor(1) as threads:
        assert threads.submit(holder_name).result() != holder_name()
    assert holder_name() == holder_name()


def test_a_job_that_requests_something_else_by_then_does_not_start(lab: Lab) -> None:
    lab.node("n1")
    job = lab.submit()
    acquire_lease("one", lab.now)
    decided = Decided.now(lab, "one", open_round("one", lab.now))
    assert decided.starts(job)
    asked = read_change(job, {"gpus": 2}, actor=job.owner)
    change_job(job, asked, actor=job.owner)
    decided.commit(lab)
    job.refresh_from_db()
    assert (job.state, job.attempts.count()) == (Job.State.QUEUED, 0)
