"""Two do something to the same job, or a scheduler is overtaken: what came a moment ago counts, and is done once."""

from collections.abc import Callable, Iterable
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from django.utils import timezone

from cluster_app.models import Engine, Node
from connections_app import engine_registry as fleet
from engines.attempt_files import AttemptFolder
from engines.local.engine import LocalEngine
from engines.protocol import AttemptReport, NodeReport, Phase
from jobs_app.lifecycle.attempt_endings import AttemptEnd, end_attempt
from jobs_app.lifecycle.commands import cancel_job
from jobs_app.models import Attempt, GpuClaim, Job
from scheduler_app.errors import LeaseLost
from scheduler_app.models import Round
from scheduler_app.round.dispatch import dispatch
from scheduler_app.round.lease import LEASE, Loop, acquire_lease
from scheduler_app.round.reconcile import observe, release_claims
from scheduler_app.round.run_round import run_round
from scheduler_app.round.tick import engine_turn, round_is_due, tick
from tests.service_lab import UNTIL_LET_GO, Lab

State = Attempt.State
Meanwhile = Callable[[list[AttemptReport]], list[AttemptReport]]


@pytest.fixture
def running(lab: Lab) -> Job:
    """A job that runs, and would be tried again if it failed."""
    lab.node("n1")
    job = lab.submit(UNTIL_LET_GO, retries=3)
    lab.running(job)
    return job


def folder_of(lab: Lab, job: Job) -> AttemptFolder:
    return AttemptFolder(lab.root / "attempts" / str(job.attempts.get().pk))


@pytest.mark.parametrize("how", [{"exit_code": 1}, {"lost": True}])
def test_a_cancel_that_comes_as_the_attempt_ends_is_heard(lab: Lab, running: Job, how: dict[str, Any]) -> None:
    seen_before = running.attempts.select_related("job").get()
    cancel_job(running, actor=None)
    end_attempt(seen_before, AttemptEnd(lab.now, **how))
    running.refresh_from_db()
    assert running.state == Job.State.CANCELLED


def test_a_launch_that_fails_halfway_does_not_free_gpus_that_are_in_use(lab: Lab, running: Job) -> None:
    lock = folder_of(lab, running).lock
    lock.rename(lock.with_name("away"))
    lock.mkdir()  # the lock cannot be opened any more, though the job runs
    Attempt.objects.update(state=State.LAUNCHING, launched_at=None)
    dispatch(lab.fence, lab.now)
    release_claims(lab.now)
    assert lab.gpus_held(running) == {"n1/0"}


class SlowEngine(LocalEngine):
    """While it looks for its nodes, another scheduler takes over."""

    def nodes(self) -> list[NodeReport]:
        assert acquire_lease("two", timezone.now() + 2 * LEASE, Loop.ENGINES)
        return super().nodes()


def test_a_scheduler_that_is_overtaken_before_a_round_gives_up_without_an_error(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(
        fleet.FACTORIES, Engine.Kind.LOCAL.value, lambda setup: SlowEngine(lab.root, declared=setup.emulated)
    )
    lab.node("n1")
    lab.submit()
    assert not tick("one", lab.now)
    assert not Round.objects.exists()


class HauntedEngine(LocalEngine):
    """After a poll something happens, once, before its caller has the reports; reports may be changed."""

    def __init__(self, *args: Any, meanwhile: Meanwhile, **options: Any) -> None:
        super().__init__(*args, **options)
        self.meanwhile: Meanwhile | None = meanwhile

    def poll(self, attempts: Iterable[int]) -> list[AttemptReport]:
        reports = super().poll(attempts)
        meanwhile, self.meanwhile = self.meanwhile, None
        return meanwhile(reports) if meanwhile else reports


@pytest.fixture
def after_the_next_poll(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], None]:
    """Let something happen between the next poll and the use of its reports."""

    def install(meanwhile: Meanwhile) -> None:
        engine = HauntedEngine(lab.root, declared=["n1"], meanwhile=meanwhile)
        monkeypatch.setitem(fleet.FACTORIES, Engine.Kind.LOCAL.value, lambda _: engine)
        fleet.engine_over.cache_clear()

    return install


def test_a_scheduler_that_was_stopped_between_a_poll_and_its_use_ends_nothing(
    lab: Lab, after_the_next_poll: Callable[[Any], None]
) -> None:
    lab.node("n1")
    job = lab.submit(UNTIL_LET_GO)
    acquire_lease("lab", lab.now)
    run_round("lab", lab.now)
    Attempt.objects.update(state=State.LAUNCHING)  # who decided it died before the launch

    def taken_over(stale: list[AttemptReport]) -> list[AttemptReport]:
        assert [report.phase for report in stale] == [Phase.UNKNOWN]
        later = lab.now + 2 * LEASE
        while not Attempt.objects.filter(state=State.RUNNING).exists():
            assert engine_turn("two", later)
        return stale

    after_the_next_poll(taken_over)
    assert not engine_turn("lab", lab.now)
    attempt = job.attempts.get()
    assert (attempt.state, attempt.gone_at) == (State.RUNNING, None)
    assert lab.gpus_held(job) == {"n1/0"}


def test_a_running_attempt_that_its_engine_does_not_know_is_asked_for_again(
    lab: Lab, running: Job, after_the_next_poll: Callable[[Any], None]
) -> None:
    after_the_next_poll(lambda reports: [AttemptReport(r.attempt, Phase.UNKNOWN, proven_gone=True) for r in reports])
    assert engine_turn("lab", lab.now)
    assert running.attempts.get().state == State.RUNNING


def test_a_scheduler_that_lost_its_lease_sends_no_command(lab: Lab, running: Job) -> None:
    fence = lab.fence
    cancel_job(running, actor=None)
    acquire_lease("two", lab.now + 2 * LEASE, Loop.ENGINES)
    with pytest.raises(LeaseLost):
        dispatch(fence, lab.now)
    assert not folder_of(lab, running).stop.exists()


# -- a clock that is set back ------------------------------------------------------------------------------------


def test_rounds_go_on_after_the_clock_was_set_back(lab: Lab) -> None:
    lab.policy(round_s=60)
    lab.tick()
    assert round_is_due(Round.objects.get().started_at - timedelta(hours=1))


def test_gpus_are_released_after_the_clock_was_set_back(lab: Lab, running: Job) -> None:
    end_attempt(running.attempts.get(), AttemptEnd(lab.now, exit_code=0, gone=True))
    release_claims(lab.now - timedelta(hours=1))
    assert not GpuClaim.objects.open().exists()


# -- what is heard late ------------------------------------------------------------------------------------------


def test_a_process_that_stood_still_before_its_turn_gives_no_gpu_to_two_at_once(lab: Lab, running: Job) -> None:
    """By the times of their claims: it read the clock, and took the lease over when the other had ended."""
    when_it_read_the_clock = lab.now
    lab.let_go(running)
    lab.until_state(running, Job.State.SUCCEEDED)
    lab.submit("true", gpus=2)
    assert acquire_lease("lab", lab.now)
    run_round("lab", lab.now)
    dispatch(lab.fence, when_it_read_the_clock)
    for first, second in pairwise(GpuClaim.objects.filter(gpu__index=0).order_by("pk")):
        assert first.released_at <= second.held_from


def test_an_attempt_that_was_given_up_does_not_set_its_jobs_progress_back(lab: Lab, running: Job) -> None:
    lost = running.attempts.get()
    lost_progress = folder_of(lab, running).progress_lines(0)
    end_attempt(lost, AttemptEnd(lab.now, lost=True))
    Job.objects.update(step=500)
    lost_progress.write_text('{"step": 300}\n')
    lab.until(lambda: (observe(lab.fence, lab.now), Attempt.objects.get(pk=lost.pk).reports)[1])
    running.refresh_from_db()
    assert running.step == 500


def test_one_engine_that_cannot_be_told_does_not_keep_others_from_starting(lab: Lab, running: Job) -> None:
    stop = folder_of(lab, running).stop
    stop.mkdir()  # a request to stop cannot be left there
    cancel_job(running, actor=None)
    other = lab.submit(UNTIL_LET_GO)
    lab.running(other)
    stop.rmdir()
    lab.until_state(running, Job.State.CANCELLED)


def test_the_look_at_silence_writes_nothing_where_nothing_changed(lab: Lab, django_assert_max_num_queries: Any) -> None:
    for number in range(20):
        lab.node(f"n{number}")
    lab.tick()
    assert Node.objects.count() == 20
    with django_assert_max_num_queries(38):
        observe(lab.fence, lab.now)


def test_a_clock_that_is_set_forward_ends_no_job_with_a_time_limit(lab: Lab) -> None:
    lab.node("n1")
    job = lab.submit(UNTIL_LET_GO, time_limit="20m")
    lab.running(job)
    lab.ahead += timedelta(hours=1)
    for _ in range(3):
        lab.round()
    lab.let_go(job)
    lab.until_state(job, Job.State.SUCCEEDED)
    job.refresh_from_db()
    assert job.ran_s < timedelta(minutes=10).total_seconds()
