"""GPU-hours per day, team and type: they add up, and stay when jobs have left the database."""

from datetime import UTC, date, datetime, timedelta

import pytest
from django.db.models import Sum
from django.test import Client
from django.utils import timezone
from pytest_django import Settings

from accounting_app.fairness.usage_ledger import accrue
from accounting_app.fairness.usage_report import Period, usage_between
from accounting_app.models import DailyUsage, LedgerCoverage, TeamUsage
from cluster_app.models import GpuType
from jobs_app.models import Attempt, Job
from operations.retention import delete_expired
from tests.rest_callers import caller
from tests.service_lab import UNTIL_LET_GO, Lab, lab_of_rows
from tests.shared_rows import shared_rows

HOUR = timedelta(hours=1)
EVENING = datetime(2026, 1, 31, 22, tzinfo=UTC)
USAGE = "/api/v1/usage"


@pytest.fixture(autouse=True)
def _plain_pages(plain_static: None) -> None:
    """Pages need no `collectstatic`."""


@shared_rows
def night() -> Lab:
    """From ten in the evening of 31 January until one, vision runs on two GPUs of speed 1.5."""
    lab = lab_of_rows()
    lab.node("n1", gpus=2)
    GpuType.objects.update(price_per_hour=3)
    LedgerCoverage.extend(EVENING)
    job = lab.submit(gpus=2)
    lab.attempt(job, state=Attempt.State.RUNNING, started_at=EVENING, relative_speed=1.5, gpu_count=2)
    for half_hours in range(1, 7):
        accrue(EVENING + half_hours * HOUR / 2)
    return lab


def gpu_hours() -> dict[str, float]:
    sums = DailyUsage.objects.values_list("day").annotate(Sum("gpu_s")).order_by("day")
    return {f"{day:%F}": gpu_s / 3600 for day, gpu_s in sums}


def test_a_night_is_split_at_midnight(night: Lab) -> None:
    assert gpu_hours() == pytest.approx({"2026-01-31": 4, "2026-02-01": 2})
    assert DailyUsage.objects.aggregate(sum=Sum("work_gpu_s"))["sum"] == pytest.approx(9 * 3600)


def test_days_and_minutes_add_up_to_the_same(night: Lab) -> None:
    sums = [model._default_manager.aggregate(sum=Sum("gpu_s"))["sum"] for model in (DailyUsage, TeamUsage)]
    assert sums[0] == pytest.approx(sums[1])


def test_an_outage_of_the_service_is_counted_if_jobs_ran_on(night: Lab) -> None:
    accrue(EVENING + 26 * HOUR)
    assert gpu_hours() == pytest.approx({"2026-01-31": 4, "2026-02-01": 48})


def test_a_report_by_month_has_hours_work_and_cost(night: Lab) -> None:
    rows = usage_between(date(2026, 1, 1), date(2026, 2, 28), night.user(), by=Period.MONTH)
    assert [(f"{row.period:%F}", row.team, row.gpu_type) for row in rows] == [
        ("2026-02-01", "vision", "a100"),
        ("2026-01-01", "vision", "a100"),
    ]
    assert [(row.gpu_hours, row.work_gpu_hours, row.cost) for row in rows] == [
        pytest.approx((2, 3, 6)),
        pytest.approx((4, 6, 12)),
    ]


def test_other_teams_do_not_see_it_and_staff_do(night: Lab) -> None:
    asked = {"since": "2026-01-01", "until": "2026-02-28"}
    assert caller(night.user("bob", "speech")).get(USAGE, asked).json()["rows"] == []
    assert len(caller(night.user("root", "ops", staff=True)).get(USAGE, asked).json()["rows"]) == 2
    assert caller(night.user()).get(USAGE, asked | {"team": "speech"}).json()["rows"] == []


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({"since": "2026-02-01", "until": "2026-01-01"}, "/until"),
        ({"since": "2025-01-01", "until": "2026-01-01", "by": "day"}, "/since"),
        ({"since": "yesterday"}, "/since"),
        ({"by": "year"}, "/by"),
    ],
)
def test_what_cannot_be_reported_is_refused_by_its_field(asked: dict[str, str], field: str, night: Lab) -> None:
    answer = caller(night.user()).get(USAGE, asked)
    assert answer.status_code == 400
    assert [error["pointer"] for error in answer.json()["errors"]] == [field]


def test_without_words_it_is_this_month(night: Lab) -> None:
    today = timezone.now().date()
    DailyUsage.objects.create(team=night.team(), gpu_type=GpuType.objects.get(), day=today, gpu_s=3600)
    answer = caller(night.user()).get(USAGE).json()
    assert (answer["since"], answer["until"]) == (f"{today:%Y-%m}-01", f"{today:%F}")
    assert [row["gpu_hours"] for row in answer["rows"]] == [1]


def test_the_page_shows_twelve_months_and_gives_them_as_csv(night: Lab) -> None:
    today = timezone.now().date()
    DailyUsage.objects.create(team=night.team(), gpu_type=GpuType.objects.get(), day=today, gpu_s=7200)
    browser = Client()
    browser.force_login(night.user())
    assert f"{today:%B %Y}" in browser.get("/usage").content.decode()
    lines = browser.get("/usage?format=csv").getvalue().decode().splitlines()
    assert lines[0] == "month,team,gpu_type,gpu_hours,work_gpu_hours,cost,energy_kwh,energy_source"
    assert f"{today:%Y-%m},vision,a100,2.0,0.0,6.0,0.8,power" in lines


def test_rest_gives_days_and_months_as_csv_with_the_same_query(night: Lab) -> None:
    today = timezone.now().date()
    DailyUsage.objects.create(team=night.team(), gpu_type=GpuType.objects.get(), day=today, gpu_s=7200)
    ada = caller(night.user())
    answer = ada.get(f"{USAGE}.csv", {"by": "day", "since": f"{today:%F}"})
    assert answer.getvalue().decode().splitlines() == [
        "day,team,gpu_type,gpu_hours,work_gpu_hours,cost,energy_kwh,energy_source",
        f"{today:%F},vision,a100,2.0,0.0,6.0,0.8,power",
    ]
    assert ada.get(f"{USAGE}.csv", {"by": "year"}).status_code == 400


def test_it_stays_when_the_jobs_are_archived_and_the_minutes_deleted(lab: Lab, settings: Settings) -> None:
    settings.MOTLEY_ARCHIVE_ROOT = lab.root / "archive"
    lab.node("n1")
    job = lab.submit(UNTIL_LET_GO)
    lab.running(job)
    lab.ahead += timedelta(minutes=1)
    lab.round()
    lab.let_go(job)
    lab.until_state(job, Job.State.SUCCEEDED)
    lab.round()
    before = gpu_hours()
    assert sum(before.values()) > 0
    lab.submit()
    Job.objects.filter(pk=job.pk).update(finished_at=timezone.now() - timedelta(days=400))
    delete_expired(timezone.now() + timedelta(days=100))
    assert not Job.objects.filter(pk=job.pk).exists()
    assert gpu_hours() == before


def test_rounds_beside_a_late_turn_of_the_engines_count_no_time_after_the_end(lab: Lab) -> None:
    """While engines are not heard, a job that has ended still counts as running; its usage is what it really ran."""
    lab.node("n1", gpus=2)
    lab.policy("max_min_fairness", round_s=60)
    lab.running(job := lab.submit(UNTIL_LET_GO, gpus=2))
    lab.let_go(job)
    lab.decide()
    lab.decide()
    lab.until_state(job, Job.State.SUCCEEDED)
    lab.decide()
    [attempt] = lab.attempts(job)
    assert attempt.started_at
    assert attempt.ended_at
    ran_s = (attempt.ended_at - attempt.started_at).total_seconds()
    counted_s = DailyUsage.objects.aggregate(sum=Sum("gpu_s"))["sum"]
    assert counted_s == pytest.approx(2 * ran_s, abs=20)  # not two rounds of a minute more
