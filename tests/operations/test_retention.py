"""What is out of date goes; what a job or a round still needs stays, however old it is."""

import threading
from datetime import timedelta
from io import StringIO

import pytest
from django.conf import settings
from django.core.management import call_command
from django.test import Client
from django.utils import timezone
from pytest_django import Settings

from accounting_app.models import GpuTypeUsage, RetentionRun, TeamUsage
from audit_app.models import AuditEntry
from cluster_app.models import GpuType, NodeEvent
from engines.local.engine import LocalEngine
from engines.protocol import EngineError
from insight_app.timeline.reading import read_outages
from jobs_app.models import ApiToken, IdempotencyKey, Job, JobEvent
from operations import retention as pruning
from operations.retention import NEWEST_ROUNDS, count_expired, delete_expired, delete_expired_when_due
from scheduler_app.models import Round, SchedulerLease
from scheduler_app.round.inputs import newest_events
from scheduler_app.round.replay import replay_round
from scheduler_app.round.tick import round_is_due
from tests.rest_callers import caller
from tests.service_lab import Lab

DAY = timedelta(days=1)


def a_round(number: int, *, age: timedelta, good: bool = True) -> Round:
    result = Round.Result.COMMITTED if good else Round.Result.FAILED
    at = timezone.now() - age
    return Round.objects.create(number=number, started_at=at, shares_since=at, result=result, archive=b"snapshot")


@pytest.fixture
def rounds(db: None) -> None:
    """One a day for a hundred days, the newest today."""
    for age in range(100):
        a_round(100 - age, age=age * DAY)


def test_snapshots_of_rounds_go_after_a_week_and_at_least_the_newest_ten_stay(rounds: None) -> None:
    delete_expired(timezone.now())
    assert Round.objects.exclude(archive=None).count() == NEWEST_ROUNDS


def test_rounds_go_after_ninety_days(rounds: None) -> None:
    delete_expired(timezone.now())
    assert Round.objects.count() == 90


def test_the_last_rounds_stay_even_when_nothing_was_decided_for_a_year(db: None) -> None:
    a_round(1, age=500 * DAY)
    a_round(2, age=400 * DAY, good=False)
    delete_expired(timezone.now())
    assert Round.objects.exclude(archive=None).count() == 2


def test_the_site_says_how_long(rounds: None, settings: Settings) -> None:
    settings.MOTLEY_KEEP_SNAPSHOTS = 50.5 * DAY
    delete_expired(timezone.now())
    assert Round.objects.exclude(archive=None).count() == 51


def test_rounds_go_on_as_if_nothing_had_happened(lab: Lab) -> None:
    """A whole life, a year ago: the next round starts the next job, and the last one can be solved again."""
    lab.node("n1")
    lab.until_state(lab.submit("true"), Job.State.SUCCEEDED)
    running = lab.submit("sleep 1000")
    lab.running(running)
    age_everything(400 * DAY)
    newest, last = newest_events(), Round.objects.filter(result=Round.Result.COMMITTED)[0]
    delete_expired(timezone.now())
    assert newest_events() == newest
    assert replay_round(last.number)[2]
    lab.running(lab.submit("sleep 1000"))


def age_everything(age: timedelta) -> None:
    JobEvent.objects.update(at=timezone.now() - age)
    NodeEvent.objects.update(at=timezone.now() - age)
    Job.objects.exclude(finished_at=None).update(finished_at=timezone.now() - age)
    Round.objects.update(started_at=timezone.now() - age)


def finished(lab: Lab, *, age: timedelta) -> Job:
    job = lab.submit()
    Job.objects.filter(pk=job.pk).update(state=Job.State.SUCCEEDED, finished_at=timezone.now() - age)
    job.events.update(at=timezone.now() - age - DAY)
    return job


def test_the_history_of_a_job_goes_a_year_after_its_end(lab: Lab) -> None:
    lab.node("n1")
    old, recent = finished(lab, age=366 * DAY), finished(lab, age=364 * DAY)
    lab.submit()
    delete_expired(timezone.now())
    assert (old.events.count(), recent.events.count()) == (0, 1)


def test_the_history_of_a_job_that_still_runs_stays(lab: Lab) -> None:
    lab.node("n1")
    job = lab.submit()
    job.events.update(at=timezone.now() - 400 * DAY)
    lab.submit()
    delete_expired(timezone.now())
    assert job.events.exists()


def test_nothing_new_is_taken_for_news_when_the_last_event_is_old(lab: Lab) -> None:
    lab.node("n1")
    finished(lab, age=400 * DAY)
    newest = newest_events()
    delete_expired(timezone.now())
    assert newest_events() == newest


def test_of_the_events_of_a_node_the_last_change_of_its_state_stays(lab: Lab) -> None:
    """So the timeline knows what a resume ends, and ignores one that ends nothing."""
    now = timezone.now()
    broken, sound = lab.node("n1"), lab.node("n2")
    NodeEvent.objects.all().delete()
    for days, node, kind in ((500, broken, "cordoned"), (400, broken, "drained"), (1, broken, "resumed")):
        NodeEvent.objects.create(node=node, kind=kind, at=now - days * DAY, message="its fan")
    NodeEvent.objects.create(node=sound, kind="resumed", at=now - DAY)
    delete_expired(now)
    assert list(broken.events.values_list("kind", flat=True)) == ["resumed", "drained"]
    (outage,) = read_outages(now - 7 * DAY, ["n1", "n2"])
    assert (outage.node, outage.what, outage.reason, outage.until) == ("n1", "drained", "its fan", now - DAY)


def test_minutes_of_the_ledger_go_after_ninety_days(lab: Lab) -> None:
    lab.node("n1")
    lab.submit()
    for age in (89 * DAY, 91 * DAY):
        TeamUsage.objects.create(team=lab.team("vision"), minute=timezone.now() - age)
        GpuTypeUsage.objects.create(gpu_type=GpuType.objects.get(), minute=timezone.now() - age)
    delete_expired(timezone.now())
    assert (TeamUsage.objects.count(), GpuTypeUsage.objects.count()) == (1, 1)


def test_idempotency_keys_go_after_three_days(lab: Lab) -> None:
    user = lab.user("ann", "vision")
    for hours in (71, 73):
        at = timezone.now() - timedelta(hours=hours)
        IdempotencyKey.objects.create(user=user, route="jobs", key=str(hours), status=201, answer={}, created_at=at)
    delete_expired(timezone.now())
    assert list(IdempotencyKey.objects.values_list("key", flat=True)) == ["71"]


def test_the_audit_list_goes_back_two_years(db: None) -> None:
    for age in (729 * DAY, 731 * DAY):
        AuditEntry.objects.create(action="job.cancel", at=timezone.now() - age)
    delete_expired(timezone.now())
    assert AuditEntry.objects.count() == 1


def a_token(lab: Lab, name: str, *, expired: timedelta | None, made_by: ApiToken | None = None) -> ApiToken:
    expires_at = timezone.now() - expired if expired is not None else None
    return ApiToken.objects.create(
        user=lab.user("ann", "vision"), name=name, digest=name, expires_at=expires_at, made_by=made_by
    )


def names_of_tokens() -> set[str]:
    return set(ApiToken.objects.values_list("name", flat=True))


def test_tokens_go_two_years_after_their_expiry_and_those_without_one_stay(lab: Lab) -> None:
    before = names_of_tokens()
    a_token(lab, "long-expired", expired=731 * DAY)
    a_token(lab, "expired", expired=729 * DAY)
    a_token(lab, "endless", expired=None)
    delete_expired(timezone.now())
    assert names_of_tokens() - before == {"expired", "endless"}


def test_revoked_tokens_go_two_years_after_that_with_or_without_an_expiry(lab: Lab) -> None:
    before = names_of_tokens()
    for name, age in (("long-revoked", 731 * DAY), ("revoked", 729 * DAY)):
        token = a_token(lab, name, expired=None)
        ApiToken.objects.filter(pk=token.pk).update(revoked_at=timezone.now() - age)
    delete_expired(timezone.now())
    assert names_of_tokens() - before == {"revoked"}


def test_a_token_stays_while_one_that_it_made_is_valid(lab: Lab) -> None:
    maker = a_token(lab, "maker", expired=731 * DAY)
    made = a_token(lab, "made", expired=None, made_by=maker)
    delete_expired(timezone.now())
    made.refresh_from_db()
    assert made.made_by == maker


def test_a_dry_run_says_what_would_go_and_drops_nothing(rounds: None) -> None:
    out = StringIO()
    call_command("prune", "--dry-run", stdout=out)
    assert "90  snapshots of rounds" in out.getvalue()
    assert Round.objects.exclude(archive=None).count() == 100


def test_a_dry_run_says_what_then_goes(rounds: None) -> None:
    now = timezone.now()
    assert count_expired(now)["snapshots of rounds"] == delete_expired(now).removed["snapshots of rounds"]


def test_what_does_not_go_in_the_time_there_is_goes_later(rounds: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pruning, "ROWS_PER_BATCH", 7)
    assert sum(delete_expired(timezone.now(), time_budget=timedelta(0)).removed.values()) == 7
    delete_expired(timezone.now())
    assert Round.objects.exclude(archive=None).count() == NEWEST_ROUNDS


@pytest.mark.usefixtures("retention_here")
def test_the_scheduler_prunes_once_an_hour(rounds: None) -> None:
    now = timezone.now()
    SchedulerLease.objects.create(pk=SchedulerLease.Loop.ENGINES)
    delete_expired_when_due(now)
    a_round(0, age=99 * DAY)
    delete_expired_when_due(now + timedelta(minutes=59))
    assert Round.objects.filter(number=0).exists()
    delete_expired_when_due(now + timedelta(minutes=61))
    assert not Round.objects.filter(number=0).exists()


@pytest.mark.usefixtures("retention_here")
def test_a_clock_that_was_set_back_does_not_stop_pruning(rounds: None) -> None:
    SchedulerLease.objects.create(pk=SchedulerLease.Loop.ENGINES)
    delete_expired_when_due(timezone.now() + 30 * DAY)
    a_round(0, age=200 * DAY)
    delete_expired_when_due(timezone.now())
    assert not Round.objects.filter(number=0).exists()


@pytest.mark.usefixtures("retention_here")
def test_what_did_not_go_in_its_time_goes_a_minute_later(rounds: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pruning, "ROWS_PER_BATCH", 7)
    monkeypatch.setattr(pruning, "TIME_BUDGET", timedelta(0))
    now = timezone.now()
    SchedulerLease.objects.create(pk=SchedulerLease.Loop.ENGINES)
    counts = []
    for seconds in (0, 59, 61):
        delete_expired_when_due(now + timedelta(seconds=seconds))
        counts.append(Round.objects.exclude(archive=None).count())
    assert counts == [93, 93, 86]


def test_the_loop_of_the_engines_does_not_wait_for_retention(rounds: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may add up sizes of files and figures of months for minutes."""
    commands: list[list[str]] = []
    monkeypatch.setattr("subprocess.run", lambda command, **_: commands.append(command))
    SchedulerLease.objects.create(pk=SchedulerLease.Loop.ENGINES)
    for _ in range(2):
        delete_expired_when_due(timezone.now())
    for thread in [one for one in threading.enumerate() if one.name == "retention"]:
        thread.join()
    assert [command[-4:] for command in commands] == [
        [str(settings.BASE_DIR / "manage.py"), "prune", "--briefly", "--skip-checks"]
    ]
    assert Round.objects.exclude(archive=None).count() == 100


def test_what_is_added_up_takes_no_time_from_the_rules(rounds: None, monkeypatch: pytest.MonkeyPatch) -> None:
    clock_s = 0.0

    def measure() -> None:
        nonlocal clock_s
        clock_s += 60

    monkeypatch.setattr(pruning, "measure_files", measure)
    monkeypatch.setattr(pruning, "monotonic", lambda: clock_s)
    monkeypatch.setattr(pruning, "ROWS_PER_BATCH", 7)
    SchedulerLease.objects.create(pk=SchedulerLease.Loop.ENGINES)
    call_command("prune", "--briefly", stdout=StringIO())
    assert Round.objects.exclude(archive=None).count() == NEWEST_ROUNDS
    assert RetentionRun.objects.get().complete


def test_a_tick_prunes(lab: Lab) -> None:
    lab.node("n1")
    a_round(1, age=100 * DAY)
    for number in range(2, 20):
        a_round(number, age=DAY)
    assert round_is_due(timezone.now())
    SchedulerLease.objects.create(pk=SchedulerLease.Loop.ROUNDS, token=20)
    lab.round()
    assert not Round.objects.filter(number=1).exists()


# -- files of jobs -------------------------------------------------------------------------------------------------


@pytest.fixture
def cluster(lab: Lab, plain_static: None) -> Lab:
    lab.node("n1")
    return lab


def ended(lab: Lab, *, ago: timedelta) -> Job:
    job = lab.until_state(lab.submit("echo said; echo x > $MOTLEY_CHECKPOINT_DIR/x"), Job.State.SUCCEEDED)
    Job.objects.filter(pk=job.pk).update(finished_at=timezone.now() - ago)
    return job


def folders(lab: Lab, job: Job) -> list[bool]:
    attempts = [lab.root / "attempts" / str(attempt.pk) for attempt in lab.attempts(job)]
    return [folder.exists() for folder in (lab.root / "jobs" / str(job.pk), *attempts)]


def test_files_of_a_job_go_half_a_year_after_its_end_and_logs_say_so(
    cluster: Lab,
) -> None:
    ada, browser = caller(cluster.user()), Client()
    browser.force_login(cluster.user())
    old, young = ended(cluster, ago=181 * DAY), ended(cluster, ago=179 * DAY)
    delete_expired(timezone.now())
    assert (folders(cluster, old), folders(cluster, young)) == ([False, False], [True, True])
    answer = ada.get(f"/api/v1/jobs/{old.pk}/logs")
    assert (answer.status_code, answer.json()["code"]) == (410, "files_deleted")
    assert "were deleted on" in answer.json()["detail"]
    stream = ada.get(f"/api/v1/jobs/{old.pk}/logs", headers={"Accept": "text/event-stream"})
    assert stream.status_code == 410
    assert "were deleted on" in browser.get(f"/jobs/{old.pk}?tab=logs").content.decode()
    assert ada.get(f"/api/v1/jobs/{old.pk}").json()["files_deleted_at"]
    assert ada.get(f"/api/v1/jobs/{young.pk}/logs").content == b"said\n"
    cluster.until(lambda: [path.name for path in (cluster.root / "discarded").iterdir()] == ["lock"])


def test_files_of_a_job_that_may_still_run_stay(cluster: Lab) -> None:
    job = ended(cluster, ago=200 * DAY)
    job.attempts.update(gone_at=None)
    delete_expired(timezone.now())
    assert folders(cluster, job) == [True, True]


def test_an_engine_that_cannot_delete_keeps_nothing_else_from_going(
    cluster: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = ended(cluster, ago=200 * DAY)
    AuditEntry.objects.update(at=timezone.now() - 3000 * DAY)
    with monkeypatch.context() as patched:
        patched.setattr(LocalEngine, "discard", refuse)
        assert delete_expired(timezone.now()).removed["audit entries"] > 0
    job.refresh_from_db()
    assert job.files_deleted_at is None
    delete_expired(timezone.now())
    assert folders(cluster, job) == [False, False]


def refuse(*_: object) -> None:
    raise EngineError("The disk is read-only.")
