"""Whatever comes in whatever order, jobs, attempts, claims and leases stay as promised: a state machine by hypothesis.

The rows and the functions are the service's own; the engine is played. Two schedulers take turns, overtake each other,
and write late. After each step the rows are compared with what is alive.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from datetime import timedelta
from typing import Any, ClassVar

import pytest
from django.db import transaction
from django.db.models import Count, F, Model, Q, Sum
from django.utils import timezone
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from accounting_app.models import DailyUsage, GpuTypeUsage, TeamUsage
from cluster_app.models import Engine, Node
from cluster_app.services import drain, resume
from connections_app import engine_registry as fleet
from jobs_app.errors import JobsError
from jobs_app.lifecycle.commands import cancel_job, hold_job, release_job, requeue_job
from jobs_app.models import Attempt, GpuClaim, Job, JobEvent
from scheduler_app.errors import LeaseLost
from scheduler_app.models import Round, SchedulerLease
from scheduler_app.round.dispatch import dispatch
from scheduler_app.round.lease import Fence, Loop, acquire_lease, open_round
from scheduler_app.round.reconcile import observe
from tests.chaos.rows import fault_of_history
from tests.hypothesis_examples import examples
from tests.scheduler.decided_round import Decided
from tests.scheduler.played_engine import PlayedEngine
from tests.service_lab import Lab

NODES = {"n1": 4, "n2": 2}
MOST_UNFINISHED = 5
HOLDERS = st.sampled_from(["one", "two"])
WHICH = st.integers(0, 9)
State, Phase = Job.State, Attempt.State
LIVE_OF_STATE = {
    State.QUEUED: [()],
    State.STARTING: [(Phase.CLAIMED,), (Phase.LAUNCHING,)],
    State.RUNNING: [(Phase.RUNNING,)],
    State.STOPPING: [(Phase.STOPPING,), (Phase.CLAIMED, Phase.STOPPING)],
    **{state: [()] for state in Job.FINAL},
}
"""States of a job's live attempts that are possible in each state of the job."""


class Lifecycle(RuleBasedStateMachine):
    """Jobs on two nodes, from their submission to their end."""

    lab: ClassVar[Lab]
    engine: ClassVar[PlayedEngine]

    def __init__(self) -> None:
        super().__init__()
        self._rows = transaction.atomic()
        self._rows.__enter__()
        self.now = timezone.now()
        type(self).engine = PlayedEngine(tuple(NODES), self.now)
        fleet.engine_over.cache_clear()
        for name, gpus in NODES.items():
            self.lab.node(name, gpus=gpus)
        self.decided: list[Decided] = []
        self.late: list[Fence] = []
        self.token = 0
        self.tick("one", promptly=False)
        for gpus in (1, 2, 4):
            self.submit(gpus, 1)

    def teardown(self) -> None:
        """All comes to its end, and nothing is left; then the rows are taken back."""
        try:
            self._end_all()
        finally:
            transaction.set_rollback(True)
            self._rows.__exit__(None, None, None)

    # -- what people do -----------------------------------------------------------------------------------------

    @precondition(lambda _: Job.objects.unfinished().count() < MOST_UNFINISHED)
    @rule(gpus=st.sampled_from([1, 2, 4]), retries=st.integers(0, 1))
    def submit(self, gpus: int, retries: int) -> None:
        self.lab.submit(gpus=gpus, retries=retries)

    @rule(which=WHICH, command=st.sampled_from([cancel_job, requeue_job, hold_job, release_job, release_job]))
    def command(self, which: int, command: Callable[..., None]) -> None:
        if jobs := list(Job.objects.unfinished().order_by("pk")):
            with suppress(JobsError):  # it is refused in this state
                command(jobs[which % len(jobs)], actor=None)

    @precondition(lambda _: not Node.objects.exclude(state=Node.State.READY).exists())
    @rule(name=st.sampled_from(list(NODES)))
    def drain(self, name: str) -> None:
        drain(Node.objects.get(name=name), reason="by the test", actor=None)

    @precondition(lambda _: Node.objects.exclude(state=Node.State.READY).exists())
    @rule()
    def resume(self) -> None:
        resume(Node.objects.exclude(state=Node.State.READY).get(), actor=None)

    # -- what schedulers do -------------------------------------------------------------------------------------

    @rule(holder=HOLDERS)
    def engines(self, holder: str) -> None:
        """A turn of the loop that speaks with the engines."""
        if acquire_lease(holder, self.now, Loop.ENGINES):
            fence = Fence.of(holder)
            self.late.append(fence)
            observe(fence, self.now)
            dispatch(fence, self.now)

    @rule(holder=HOLDERS, promptly=st.booleans())
    def tick(self, holder: str, *, promptly: bool) -> None:
        """What was heard is decided on, what was decided is sent, and perhaps the engine does it within a second."""
        self.engines(holder)
        self.decide(holder)
        self.commit(-1)
        self.engines(holder)
        self._wait(1)
        if promptly:
            self._obey()
            self.engines(holder)

    @rule(holder=HOLDERS)
    def decide(self, holder: str) -> None:
        """Open a round and decide it; anything may happen before its commit."""
        if acquire_lease(holder, self.now, Loop.ROUNDS):
            with self._at_this_time():
                self.decided.append(Decided.now(self.lab, holder, open_round(holder, self.now)))

    @precondition(lambda self: self.decided)
    @rule(which=WHICH)
    def commit(self, which: int) -> None:
        """One of the rounds that were decided: only the newest, by the holder of the lease, is written."""
        if not self.decided:
            return
        decided = self.decided.pop(which % len(self.decided))
        newest = SchedulerLease.objects.filter(
            pk=Loop.ROUNDS, holder=decided.holder, token=decided.record.number
        ).exists()
        with self._at_this_time(), nullcontext() if newest else pytest.raises(LeaseLost):
            decided.commit(self.lab)

    @precondition(lambda self: self._overtaken())
    @rule(which=WHICH, turn=st.sampled_from([observe, dispatch]))
    def write_late(self, which: int, turn: Callable[..., None]) -> None:
        """A process that was overtaken goes on: it neither writes nor commands anything."""
        overtaken = self._overtaken()
        before = (self._fingerprint(), {*self.engine.attempts_of_it}, {*self.engine.stopped})
        with pytest.raises(LeaseLost):
            turn(overtaken[which % len(overtaken)], self.now)
        assert (self._fingerprint(), {*self.engine.attempts_of_it}, {*self.engine.stopped}) == before

    @rule(holder=HOLDERS)
    def tick_without_an_answer(self, holder: str) -> None:
        self.engine.answers = False
        self.tick(holder, promptly=False)
        self.engine.answers = True

    # -- what processes and machines do -------------------------------------------------------------------------

    @precondition(lambda self: self._alive(started=False))
    @rule(which=WHICH)
    def start(self, which: int) -> None:
        waiting = self._alive(started=False)
        self.engine.start(waiting[which % len(waiting)])

    @precondition(lambda self: self._alive(started=True))
    @rule(which=WHICH, code=st.sampled_from([0, 0, 1, 75]))
    def exit(self, which: int, code: int) -> None:
        running = self._alive(started=True)
        self.engine.exit(running[which % len(running)], code)

    @precondition(lambda self: self.engine.alive())
    @rule()
    def obey(self) -> None:
        self._obey()

    @precondition(lambda self: self.engine.alive())
    @rule(which=WHICH)
    def lose_supervisor(self, which: int) -> None:
        alive = sorted(self.engine.alive())
        self.engine.lose(alive[which % len(alive)])

    @precondition(lambda self: not self.engine.silent)
    @rule(name=st.sampled_from(list(NODES)), seconds=st.sampled_from([40, 320]), holder=HOLDERS)
    def fall_silent(self, name: str, seconds: float, holder: str) -> None:
        """For as long as makes the node suspect, or lost."""
        self.engine.silent = {name}
        for _ in range(2):
            self._wait(seconds)
            self.engines(holder)

    @precondition(lambda self: self.engine.silent)
    @rule()
    def come_back(self) -> None:
        self.engine.silent = set()

    @rule(seconds=st.sampled_from([1, 5, 11]))
    def wait(self, seconds: float) -> None:
        """A lease is lost after 10 s."""
        self._wait(seconds)

    # -- what must hold after each of these ---------------------------------------------------------------------

    @invariant()
    def one_process_on_each_gpu(self) -> None:
        taken = [gpu for one in self.engine.alive().values() for gpu in one.gpus]
        assert len(taken) == len({*taken}), self.engine.alive()

    @invariant()
    def one_live_attempt_of_each_job(self) -> None:
        """But on nodes that were lost: what goes on there cannot be known."""
        lost = {*Node.objects.exclude(health=Node.Health.HEALTHY).values_list("name", flat=True)}
        jobs = [one.job for one in self.engine.alive().values() if not one.nodes & (lost | self.engine.silent)]
        ended = {*Attempt.objects.filter(state=Phase.ENDED).values_list("pk", flat=True)}
        left = [one.job for number, one in self.engine.alive().items() if number in ended]
        assert all(jobs.count(job) - left.count(job) <= 1 for job in jobs), self.engine.alive()

    @invariant()
    def what_is_alive_holds_its_gpus(self) -> None:
        claims = GpuClaim.objects.holding().values_list("attempt", "gpu__node__name", "gpu__index")
        held = {(attempt, f"{node}/{index}") for attempt, node, index in claims}
        missing = [(n, gpu) for n, one in self.engine.alive().items() for gpu in one.gpus if (n, gpu) not in held]
        assert not missing

    @invariant()
    def claims_are_released_only_with_proof(self) -> None:
        unproven = GpuClaim.objects.filter(released_at__isnull=False, attempt__gone_at=None)
        assert not unproven.exists()
        whole = Attempt.objects.annotate(count=Count("claims")).exclude(count=F("gpu_count"))
        assert not whole.exists()

    @invariant()
    def jobs_are_in_legal_states(self) -> None:
        live: dict[object, list[str]] = defaultdict(list)
        for pk, state in Attempt.objects.live().order_by("state").values_list("job", "state"):
            live[pk].append(state)
        for job in Job.objects.all():
            assert tuple(live[job.pk]) in LIVE_OF_STATE[State(job.state)], (job.state, live[job.pk])
            assert job.is_final == (job.finished_at is not None)

    @invariant()
    def histories_are_legal(self) -> None:
        for job in Job.objects.all():
            fault = fault_of_history(list(job.events.order_by("pk").values_list("kind", "attempt")))
            assert fault == ("" if job.is_final else "it has not finished")

    @invariant()
    def the_ledger_adds_up(self) -> None:
        days, minutes = _total(DailyUsage, "gpu_s"), _total(TeamUsage, "gpu_s")
        assert days == pytest.approx(minutes) == pytest.approx(_total(GpuTypeUsage, "busy_gpu_s"))
        spans = GpuClaim.objects.exclude(held_from=None).values_list("held_from", "released_at")
        assert days <= sum(((end or self.now) - start).total_seconds() for start, end in spans) + 1e-3

    @invariant()
    def tokens_only_grow(self) -> None:
        token = SchedulerLease.objects.filter(pk=Loop.ENGINES).values_list("token", flat=True).first() or 0
        assert token >= self.token
        self.token = token

    # -- how ----------------------------------------------------------------------------------------------------

    @contextmanager
    def _at_this_time(self) -> Iterator[None]:
        self.lab.ahead = self.now - timezone.now()
        yield

    def _alive(self, *, started: bool) -> list[int]:
        alive = self.engine.alive().items()
        return sorted(number for number, one in alive if (one.started_at is not None) == started)

    def _wait(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)
        self.engine.now = self.now

    def _obey(self) -> None:
        """What was launched starts, and what was told to stop ends."""
        for number, one in self.engine.alive().items():
            if number in self.engine.stopped and not one.nodes & self.engine.silent:
                self.engine.exit(number, 143)
            elif one.started_at is None:
                self.engine.start(number)

    def _overtaken(self) -> list[Fence]:
        current = list(SchedulerLease.objects.filter(pk=Loop.ENGINES).values_list("holder", "token"))
        return [fence for fence in dict.fromkeys(self.late) if (fence.holder, fence.token) not in current]

    def _fingerprint(self) -> list[object]:
        """What an overtaken process must leave alone."""
        models = (Job, Attempt, GpuClaim, JobEvent, Node, Engine, SchedulerLease, Round)
        return [list(model._default_manager.order_by("pk").values()) for model in models]

    def _end_all(self) -> None:
        """All is well again, and every job is cancelled."""
        self.engine.answers, self.engine.silent = True, set()
        for job in Job.objects.unfinished():
            cancel_job(job, actor=None)
        for _ in range(4):
            self._wait(11)
            self.engines("one")
            self._obey()
        assert not self.engine.alive()
        assert not Job.objects.unfinished().exists()
        assert not GpuClaim.objects.open().exists()
        assert not Attempt.objects.filter(~Q(state=Phase.ENDED) | Q(gone_at=None)).exists()


def _total(model: type[Model], column: str) -> float:
    sums: dict[str, Any] = model._default_manager.aggregate(total=Sum(column))
    return float(sums["total"] or 0.0)


@pytest.mark.more_examples
def test_jobs_attempts_claims_and_leases_stay_as_promised(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(fleet.FACTORIES, Engine.Kind.LOCAL.value, lambda _: Lifecycle.engine)
    Lifecycle.lab = lab
    run_state_machine_as_test(Lifecycle, settings=examples(20))
