"""What stops many jobs at once takes as many statements as what stops one."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from cluster_app.models import Engine, Gpu
from cluster_app.services import cordon, drain
from engines.protocol import AttemptReport, Phase, SiteReason
from jobs_app.lifecycle.attempts import StopOrder, stop_attempts
from jobs_app.models import Attempt, GpuClaim, Job, JobEvent, Reason
from scheduler_app.round.attempt_reports import _release_what_is_free, _withdraw_waiting
from scheduler_app.round.dispatch import _withdraw_from_cordoned_nodes, _withdraw_from_disabled_engines
from scheduler_app.round.stop_rules import due_stops, stop_due
from tests.service_lab import Lab

JOBS = 12
State = Attempt.State


@pytest.fixture
def lab(lab: Lab) -> Lab:
    lab.node("n1", gpus=2 * JOBS)
    return lab


def attempts_of(lab: Lab, count: int, state: State) -> list[Attempt]:
    """Attempts of as many jobs, each with a GPU of its own."""
    gpus = iter(Gpu.objects.filter(claims=None, node__name="n1").order_by("index")[:count])
    held_from = None if state == State.CLAIMED else lab.now
    made = [lab.attempt(lab.submit(), state=state, nodes=["n1"], started_at=lab.now) for _ in range(count)]
    GpuClaim.objects.bulk_create(GpuClaim(gpu=next(gpus), attempt=one, held_from=held_from) for one in made)
    jobs = Job.objects.filter(attempts__in=made)
    jobs.update(state=Job.State.RUNNING if state == State.RUNNING else Job.State.STARTING, attempt_count=1)
    return made


def statements(act: Callable[[], object]) -> int:
    with CaptureQueriesContext(
        connection,
    ) as captured:
        act()
    return len(captured)


def stop_what_is_due(lab: Lab) -> None:
    drain(Gpu.objects.all()[0].node, reason="fan", actor=None)
    stop_due(lab.fence, due_stops(lab.now))


def withdraw_what_waits(lab: Lab) -> None:
    words = "Slurm has not started it"
    waiting = Attempt.objects.filter(state=State.LAUNCHING)
    waiting.update(launched_at=lab.now - timedelta(hours=1))
    reports = [
        AttemptReport(pk, Phase.LAUNCHING, reason=SiteReason.WAITING_RESOURCES, message=words)
        for pk in waiting.values_list("pk", flat=True)
    ]
    _withdraw_waiting(reports, lab.now)


def withdraw_from_cordoned(lab: Lab) -> None:
    cordon(Gpu.objects.all()[0].node, reason="fan", actor=None)
    _withdraw_from_cordoned_nodes()


def withdraw_from_disabled(lab: Lab) -> None:
    Engine.objects.update(enabled=False)
    _withdraw_from_disabled_engines(lab.now)


def release(lab: Lab) -> None:
    pks = Attempt.objects.values_list("pk", flat=True)
    _release_what_is_free([AttemptReport(pk, Phase.ENDED, silent_nodes=["n2"]) for pk in pks], lab.now)


@pytest.mark.parametrize(
    ("act", "state"),
    [
        (stop_what_is_due, State.RUNNING),
        (withdraw_what_waits, State.LAUNCHING),
        (withdraw_from_cordoned, State.CLAIMED),
        (withdraw_from_disabled, State.LAUNCHING),
        (release, State.RUNNING),
    ],
)
def test_many_take_as_many_statements_as_one(lab: Lab, act: Callable[[Lab], None], state: State) -> None:
    counts = []
    for count in (1, JOBS):
        with transaction.atomic():
            attempts_of(lab, count, state)
            counts.append(statements(lambda: act(lab)))
            transaction.set_rollback(True)
    assert counts[1] <= counts[0] + 2


def test_a_stop_reaches_attempts_at_engines_and_withdraws_those_that_wait(lab: Lab) -> None:
    (runs,), (waits,), (stops,) = (
        attempts_of(lab, 1, state) for state in (State.RUNNING, State.CLAIMED, State.STOPPING)
    )
    Attempt.objects.filter(pk=stops.pk).update(stop_reason=Attempt.StopReason.CANCEL)
    order = StopOrder(Attempt.StopReason.DRAIN, "n1: fan")
    stop_attempts({one.job_id: order for one in (runs, waits, stops)})
    for one in (runs, waits, stops):
        one.refresh_from_db()
    assert (runs.state, runs.stop_reason, runs.stop_note) == (State.STOPPING, "drain", "n1: fan")
    assert (waits.state, waits.stop_reason) == (State.ENDED, "drain")
    assert (stops.state, stops.stop_reason) == (State.STOPPING, "cancel")
    states = {one.pk: Job.objects.get(pk=one.job_id).state for one in (runs, waits, stops)}
    assert states == {runs.pk: Job.State.STOPPING, waits.pk: Job.State.QUEUED, stops.pk: Job.State.STARTING}
    told = JobEvent.objects.filter(kind=JobEvent.Kind.STOPPING)
    assert [(event.job_id, event.message) for event in told] == [(runs.job_id, "node drained: n1: fan")]


def test_the_reason_of_the_site_is_stored_with_each_job(lab: Lab) -> None:
    made = attempts_of(lab, 2, State.LAUNCHING)
    Attempt.objects.update(launched_at=lab.now)
    words = {one.pk: f"Slurm has not started it: {one.pk}" for one in made}
    reason = SiteReason.WAITING_RESOURCES
    _withdraw_waiting(
        [AttemptReport(pk, Phase.LAUNCHING, reason=reason, message=text) for pk, text in words.items()], lab.now
    )
    jobs = {one.pk: Job.objects.get(pk=one.job_id) for one in made}
    assert {pk: (job.reason, job.message) for pk, job in jobs.items()} == {
        pk: (Reason.SITE_QUEUE, text) for pk, text in words.items()
    }


def test_gpus_of_silent_nodes_and_busy_ones_are_kept(lab: Lab) -> None:
    lab.node("n2", gpus=1)
    one, other = attempts_of(lab, 2, State.RUNNING)
    elsewhere = GpuClaim.objects.create(gpu=Gpu.objects.get(node__name="n2"), attempt=one, held_from=lab.now)
    busy = GpuClaim.objects.get(attempt=other)
    Gpu.objects.filter(pk=busy.gpu_id).update(uuid="GPU-busy")
    reports = [
        AttemptReport(one.pk, Phase.ENDED, silent_nodes=["n2"]),
        AttemptReport(other.pk, Phase.ENDED, busy_gpus=["GPU-busy"]),
    ]
    _release_what_is_free(reports, lab.now)
    assert {claim.pk for claim in GpuClaim.objects.open()} == {elsewhere.pk, busy.pk}
