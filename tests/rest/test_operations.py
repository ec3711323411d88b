"""What machines ask that look after the service: metrics, and whether it lives, is ready, and schedules."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.db import DatabaseError, connection
from django.db.migrations.recorder import MigrationRecorder
from django.test import Client
from django.utils import timezone
from prometheus_client.parser import text_string_to_metric_families

from cluster_app.models import Gpu
from cluster_app.services import cordon
from jobs_app.lifecycle.commands import cancel_job, requeue_job
from jobs_app.measurement.counters import Count, tally, total_up, totals
from jobs_app.models import Job, Notification, Tally, Total
from operations import readiness
from operations.management.commands import schedule
from scheduler_app.finish_time import ClusterLoad, FinishedJob, rho
from scheduler_app.models import Round, SchedulerLease
from tests.notification_server import webhook_of
from tests.service_lab import UNTIL_LET_GO, Lab

PROBES = ["/livez", "/readyz", "/healthz/scheduler", "/metrics"]


@pytest.fixture
def probe() -> Client:
    """A client without an account."""
    return Client()


@pytest.fixture
def metric(probe: Client) -> Callable[..., float]:
    """The value of a series, as Prometheus reads it."""

    def value(name: str, **labels: str) -> float:
        families = text_string_to_metric_families(probe.get("/metrics").content.decode())
        found = [s.value for family in families for s in family.samples if s.name == name and s.labels == labels]
        assert len(found) == 1, (name, labels)
        return found[0]

    return value


# -- metrics -----------------------------------------------------------------------------------------------------


def test_every_metric_that_is_promised_is_there(cluster: Lab, running: Job, probe: Client) -> None:
    text = probe.get("/metrics").content.decode()
    names = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}
    assert names == {
        *(f"DCGM_FI_DEV_{name}" for name in ("GPU_UTIL", "FB_USED", "POWER_USAGE", "GPU_TEMP")),
        "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL",
        "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS",
        "motley_gpu_slower_by_ratio",
        "motley_jobs",
        "motley_set_aside",
        "motley_forecast_jobs",
        "motley_forecast_error_ratio",
        "motley_forecast_rank_correlation_ratio",
        "motley_rate_estimate_attempts",
        "motley_rate_estimate_error_ratio",
        "motley_rate_estimate_rank_correlation_ratio",
        "motley_pending_jobs",
        "motley_job_wait_seconds",
        "motley_round_seconds",
        "motley_rounds_total",
        "motley_solver_seconds",
        "motley_solver_gap_ratio",
        "motley_preemptions_total",
        "motley_preempted_work_seconds_total",
        "motley_team_share_ratio",
        "motley_team_backlog_gpu_hours",
        "motley_team_budget_gpu_hours",
        "motley_team_budget_used_gpu_hours",
        "motley_team_budget_reset_timestamp_seconds",
        "motley_team_budget_weight_ratio",
        "motley_finish_time_fairness_ratio",
        "motley_gpus",
        "motley_engine_up",
        "motley_scheduler_last_success_timestamp_seconds",
        "motley_scheduler_patience_seconds",
        "motley_policy_guard",
        "motley_policy_effect_ratio",
        "motley_notifications",
        "motley_notification_oldest_age_seconds",
        "motley_build_info",
    }


def test_an_empty_service_has_metrics_too(db: None, probe: Client, metric: Callable[..., float]) -> None:
    assert probe.get("/metrics").status_code == 200
    assert metric("motley_jobs", state="queued") == 0


def test_jobs_are_counted_by_state(cluster: Lab, launched: Job, metric: Callable[..., float]) -> None:
    cancel_job(cluster.submit(), actor=None)
    cluster.submit(UNTIL_LET_GO)
    assert [metric("motley_jobs", state=state) for state in ("queued", "running", "cancelled")] == [1, 1, 1]
    cluster.let_go(launched)
    cluster.until_state(launched, Job.State.SUCCEEDED)
    assert metric("motley_jobs", state="succeeded") == 1


def test_waiting_jobs_are_counted_by_reason(cluster: Lab, metric: Callable[..., float]) -> None:
    for _ in range(6):
        cluster.submit(UNTIL_LET_GO)
    cluster.round()
    (reason,) = set(Job.objects.queued().values_list("reason", flat=True))
    assert metric("motley_pending_jobs", reason=reason) == 2


def test_gpus_are_counted_by_condition(cluster: Lab, running: Job, metric: Callable[..., float]) -> None:
    cordon(cluster.node("n2"), reason="fan", actor=None)
    Gpu.objects.filter(node__name="n1", index=3).update(healthy=False)
    conditions = ("busy", "idle", "draining", "unhealthy")
    assert [metric("motley_gpus", gpu_type="a100", state=each) for each in conditions] == [1, 2, 2, 1]


def test_what_is_not_sent_yet_or_was_given_up_is_counted(cluster: Lab, metric: Callable[..., float]) -> None:
    target = webhook_of(cluster.user())
    now = timezone.now()
    rows = [("pending", 0, 5), ("pending", 0, 90), ("pending", 3, 3600), ("dead", 12, 90_000), ("sent", 1, 99_000)]
    for key, (state, tries, age_s) in enumerate(rows):
        facts = {"state": state, "tries": tries, "created_at": now - timedelta(seconds=age_s)}
        Notification.objects.create(target=target, event="job_ended", key=str(key), **facts)
    assert [metric("motley_notifications", state=one) for one in ("pending", "failed", "given_up")] == [2, 1, 1]
    assert 3600 <= metric("motley_notification_oldest_age_seconds") < 90_000


def test_rounds_are_counted_and_timed(cluster: Lab, metric: Callable[..., float]) -> None:
    cluster.round()
    cluster.round()
    assert metric("motley_rounds_total", result="committed") == 2
    assert metric("motley_round_seconds_count") == metric("motley_solver_seconds_count") == 2
    assert metric("motley_round_seconds_sum") >= metric("motley_solver_seconds_sum") > 0
    assert metric("motley_round_seconds_bucket", le="+Inf") == 2


def test_waits_are_counted_once_for_a_job(cluster: Lab, launched: Job, metric: Callable[..., float]) -> None:
    requeue_job(launched, actor=None)
    cluster.until(lambda: Job.objects.get(pk=launched.pk).attempt_count == 2)
    cluster.running(launched)
    assert metric("motley_job_wait_seconds_count") == 1


def test_preemptions_are_counted_by_reason(cluster: Lab, launched: Job, metric: Callable[..., float]) -> None:
    requeue_job(launched, actor=None)
    cluster.until(lambda: launched.attempts.filter(outcome="requeued").exists())
    assert metric("motley_preemptions_total", reason="requeue") == 1
    assert metric("motley_preempted_work_seconds_total") >= 0


def test_usage_is_reported_by_team(cluster: Lab, launched: Job, metric: Callable[..., float]) -> None:
    cluster.round()
    cluster.until(lambda: metric("motley_team_share_ratio", team="vision", kind="delivered") == 1)
    assert metric("motley_team_backlog_gpu_hours", team="vision") >= 0


def test_a_job_that_had_all_to_itself_was_treated_fairly(
    cluster: Lab, launched: Job, metric: Callable[..., float]
) -> None:
    cluster.let_go(launched)
    cluster.until_state(launched, Job.State.SUCCEEDED)
    cluster.round()
    assert metric("motley_finish_time_fairness_ratio_count") == 1


def test_a_million_finished_jobs_are_not_counted_again(
    cluster: Lab, probe: Client, django_assert_max_num_queries
) -> None:
    with django_assert_max_num_queries(23) as asked:
        probe.get("/metrics")
    assert not [query for query in asked.captured_queries if "succeeded" in query["sql"]]


def test_with_a_token_only_requests_that_carry_it_are_answered(db: None, probe: Client, settings) -> None:
    settings.MOTLEY_METRICS_TOKEN = "known to Prometheus"
    answers = [
        probe.get("/metrics", headers=headers)
        for headers in ({}, {"authorization": "Bearer guessed"}, {"authorization": "Bearer known to Prometheus"})
    ]
    assert [answer.status_code for answer in answers] == [401, 401, 200]


# -- totals ------------------------------------------------------------------------------------------------------


def test_totals_are_the_same_before_and_after_they_are_added_up(db: None) -> None:
    counts = [Count("rounds", "failed"), Count("round_seconds", value=0.2), Count("round_seconds", value=1e9)]
    tally(*counts)
    before = dict(totals())
    total_up()
    tally(*counts)
    assert before == {
        ("rounds", "failed"): 1,
        ("round_seconds", "0.3"): 1,
        ("round_seconds", "+Inf"): 1,
        ("round_seconds", "sum"): 1e9 + 0.2,
    }
    assert dict(totals()) == {key: 2 * value for key, value in before.items()}
    total_up()
    assert dict(totals()) == {key: 2 * value for key, value in before.items()}
    assert not Tally.objects.exists()


def test_what_is_added_up_is_kept_in_few_rows(db: None) -> None:
    for _ in range(5):
        tally(*[Count("rounds", "failed")] * 100)
        total_up()
    assert Total.objects.get().value == 500


# -- finish-time fairness ----------------------------------------------------------------------------------------

NOON = timezone.now().replace(hour=12, minute=0, second=0, microsecond=0)


def ended(*, queued_s: float, ran_s: float, gpus: int, most: int) -> FinishedJob:
    return FinishedJob(NOON, NOON + timedelta(seconds=queued_s + ran_s), most, work_s=ran_s * gpus)


@pytest.mark.parametrize(
    ("job", "load", "expected"),
    [
        # alone on 4 GPUs, which is all it can use: its own pace
        (ended(queued_s=0, ran_s=100, gpus=4, most=4), [(8, 2)], 1.0),
        # its part is 2 of 8 GPUs, and it had 4: twice as fast as fair
        (ended(queued_s=0, ran_s=100, gpus=4, most=4), [(8, 4)], 0.5),
        # it waited as long as it ran
        (ended(queued_s=100, ran_s=100, gpus=4, most=4), [(8, 2)], 2.0),
        # the mean over its life: 8 GPUs for 1 job, then for 3
        (ended(queued_s=0, ran_s=100, gpus=4, most=8), [(8, 1), (8, 3)], 1.0),
    ],
)
def test_rho_by_hand(job: FinishedJob, load: list[tuple[int, int]], expected: float) -> None:
    rounds = [(NOON + timedelta(seconds=n), gpus, jobs) for n, (gpus, jobs) in enumerate(load)]
    assert rho(job, ClusterLoad.of(rounds)) == pytest.approx(expected)


def test_of_a_job_that_did_nothing_there_is_none() -> None:
    assert rho(ended(queued_s=0, ran_s=0, gpus=1, most=1), ClusterLoad.of([(NOON, 8, 1)])) is None


# -- whether it lives --------------------------------------------------------------------------------------------


def test_it_lives_without_asking_the_database(probe: Client) -> None:
    assert probe.get("/livez").json() == {"alive": True}


@pytest.mark.parametrize("address", PROBES)
def test_probes_are_not_sent_to_https(db: None, probe: Client, address: str, settings) -> None:
    settings.SECURE_SSL_REDIRECT = True
    settings.SECURE_REDIRECT_EXEMPT = [r"^(livez|readyz|healthz/scheduler|metrics)$"]
    assert Client().get(address).status_code != 301


@pytest.mark.parametrize("address", PROBES)
def test_probes_are_never_throttled(db: None, probe: Client, address: str, settings) -> None:
    settings.MOTLEY_ANONYMOUS_RATE = "1/d"
    assert {probe.get(address).status_code for _ in range(3)} <= {200, 503}


def test_it_is_ready_with_its_database_and_its_tables(db: None, probe: Client) -> None:
    assert probe.get("/readyz").json() == {"ready": True, "missing": {}}


@pytest.mark.django_db(transaction=True)
def test_with_tables_of_yesterday_it_is_not(probe: Client) -> None:
    readiness._seen_applied.clear()
    recorder = MigrationRecorder(connection)
    last = recorder.migration_qs.latest("id")
    recorder.record_unapplied(last.app, last.name)
    try:
        answer = probe.get("/readyz")
        assert (answer.status_code, list(answer.json()["missing"])) == (503, ["migrations"])
        assert "migrate" in answer.json()["missing"]["migrations"]
        assert int(answer["Retry-After"]) > 0
    finally:
        recorder.record_applied(last.app, last.name)


def test_where_sqlite_cannot_write_it_is_not(db: None, probe: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    if connection.vendor != "sqlite":
        pytest.skip("PostgreSQL has a disk of its own")
    monkeypatch.setattr(readiness, "LEAST_FREE_BYTES", 1 << 62)
    answer = probe.get("/readyz")
    assert (answer.status_code, answer.json()["missing"]) == (503, {"disk": "The disk of the service's data is full."})


def test_once_damage_was_found_it_is_not(db: None, probe: Client, settings, tmp_path) -> None:
    """As the loops of the scheduler find it, in another process."""
    settings.VAR_DIR = tmp_path
    schedule._say_of(DatabaseError("database disk image is malformed"))
    answer = probe.get("/readyz")
    assert (answer.status_code, answer.json()["missing"]) == (503, {"database": "The database is damaged."})


def test_without_its_broker_it_is_not(db: None, probe: Client, settings) -> None:
    settings.MOTLEY_HAS_BROKER, settings.CELERY_BROKER_URL = True, "redis://127.0.0.1:1/0"
    readiness._redis.cache_clear()
    answer = probe.get("/readyz")
    readiness._redis.cache_clear()
    assert (answer.status_code, list(answer.json()["missing"])) == (503, ["broker"])


# -- whether it schedules ----------------------------------------------------------------------------------------


def test_before_the_first_round_it_does_not(cluster: Lab, probe: Client) -> None:
    answer = probe.get("/healthz/scheduler")
    assert (answer.status_code, answer.json()["last_good_round"]) == (503, None)
    assert int(answer["Retry-After"]) > 0


def test_after_a_round_it_does(cluster: Lab, probe: Client) -> None:
    cluster.tick()
    answer = probe.get("/healthz/scheduler")
    assert (answer.status_code, answer.json()["healthy"], answer.json()["limit_seconds"]) == (200, True, 15.0)


@pytest.mark.parametrize(("round_s", "age_s", "status"), [(1, 14, 200), (1, 16, 503), (60, 179, 200), (60, 181, 503)])
def test_a_good_round_may_be_three_lengths_old_and_fifteen_seconds(
    cluster: Lab, probe: Client, round_s: float, age_s: int, status: int
) -> None:
    cluster.policy(round_s=round_s)
    cluster.tick()
    Round.objects.update(started_at=timezone.now() - timedelta(seconds=age_s))
    assert probe.get("/healthz/scheduler").status_code == status


def test_rounds_that_fail_are_no_progress(cluster: Lab, probe: Client, browser_of_ada: Client) -> None:
    cluster.tick()
    long_ago = timezone.now() - timedelta(minutes=9)
    Round.objects.update(started_at=long_ago)
    good = Round.objects.get()
    Round.objects.create(
        number=good.number + 1,
        started_at=timezone.now(),
        result=Round.Result.FAILED,
        message="SolverFailed: it stopped",
        policy="fifo",
        shares_since=long_ago,
    )
    answer = probe.get("/healthz/scheduler").json()
    assert (answer["healthy"], answer["last_good_round"], answer["last_round_failed"]) == (False, good.number, True)
    page = browser_of_ada.get("/").content.decode()
    assert "rounds are failing" in page
    assert "SolverFailed: it stopped" in page


def test_the_home_page_judges_as_the_probe_does(cluster: Lab, browser_of_ada: Client) -> None:
    cluster.tick()
    assert "is not running" not in browser_of_ada.get("/").content.decode()
    Round.objects.update(started_at=timezone.now() - timedelta(minutes=9))
    assert "is not running" in browser_of_ada.get("/").content.decode()


def test_a_lease_alone_is_no_sign_of_life(cluster: Lab, probe: Client) -> None:
    cluster.tick()
    Round.objects.update(started_at=timezone.now() - timedelta(minutes=9))
    SchedulerLease.objects.update(expires_at=timezone.now() + timedelta(minutes=1))
    assert probe.get("/healthz/scheduler").status_code == 503
