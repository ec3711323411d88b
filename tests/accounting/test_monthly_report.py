"""Monthly report of teams: its figures come from jobs that ran, and stay when these are in the archive."""

import re
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from pytest_django import Settings

from accounting_app.fairness.energy_ledger import ReadEnergy, add_energy_to_ledger
from accounting_app.fairness.monthly_report import TeamReport, read_reports
from accounting_app.fairness.team_months import close_month_when_due, month_of
from accounting_app.fairness.usage_ledger import accrue
from accounting_app.models import DailyUsage, TeamMonth
from cluster_app.models import GpuType
from jobs_app.lifecycle.commands import cancel_job, requeue_job
from jobs_app.models import Attempt, Job, Team
from operations.retention import delete_expired
from tests.query_plan import plan_of
from tests.rest_callers import caller
from tests.service_lab import UNTIL_LET_GO, Lab

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
MARCH = date(2026, 3, 1)
REPORT = "/api/v1/report"


@pytest.fixture
def cluster(lab: Lab) -> Lab:
    lab.node("n1", gpus=2)
    lab.policy("fifo", round_s=1)
    return lab


@pytest.fixture
def march(lab: Lab, plain_static: None) -> Lab:
    """Of vision in March: ada's job is stopped after an hour, goes on for two and succeeds; bob's fails on two GPUs."""
    lab.node("n1", gpus=2)
    noon = datetime(2026, 3, 10, 12, tzinfo=UTC)
    ended(lab, noon, succeeded_after=5 * HOUR, attempts=[(1, "preempted", HOUR), (1, "succeeded", 2 * HOUR)])
    ended(lab, noon, "failed", owner="bob", attempts=[(2, "failed", HOUR / 2)], waited=3 * HOUR)
    Attempt.objects.filter(outcome="preempted").update(work_lost_gpu_s=900)
    return lab


def ended(
    lab: Lab,
    at: datetime,
    state: str = "succeeded",
    *,
    owner: str = "ada",
    attempts: list[tuple[int, str, timedelta]],
    succeeded_after: timedelta = HOUR,
    waited: timedelta = HOUR,
) -> Job:
    """A job that was submitted then, with attempts of so many GPUs that ran for so long, an hour apart."""
    job = lab.submit(owner=lab.user(owner))
    start = at + waited
    for number, (gpus, outcome, length) in enumerate(attempts, 1):
        times = {"started_at": start, "ended_at": start + length, "gone_at": start + length}
        lab.attempt(job, number=number, state="ended", outcome=outcome, gpu_count=gpus, relative_speed=1.5, **times)
        start += length + HOUR
    done = {"state": state, "finished_at": at + succeeded_after, "started_at": at + waited, "created_at": at}
    Job.objects.filter(pk=job.pk).update(**done, attempt_count=len(attempts))
    return job


def report_of(lab: Lab, first: date = MARCH, **asked: Any) -> TeamReport:
    (report,) = read_reports(first, lab.user(), lab.now, **asked)
    return report


def by_job(report: TeamReport) -> dict[str, Any]:
    assert report.figures is not None
    names = ("succeeded", "failed", "cancelled", "timed_out", "started", "restarts")
    return {name: getattr(report.figures, name) for name in names}


# -- figures -------------------------------------------------------------------------------------------------------


def test_jobs_that_ran_are_reported(cluster: Lab) -> None:
    GpuType.objects.update(price_per_hour=3600)
    good, bad = cluster.submit("sleep 0.2"), cluster.submit("exit 3")
    cancel_job(cluster.submit(begin_time="2036-01-01T00:00:00Z"), actor=None)
    cluster.until_state(good, Job.State.SUCCEEDED)
    cluster.until_state(bad, Job.State.FAILED)
    again = cluster.submit(UNTIL_LET_GO)
    cluster.running(again)
    requeue_job(again, actor=None)
    cluster.until(lambda: Job.objects.get(pk=again.pk).attempt_count == 2)
    cluster.running(again)
    cluster.let_go(again)
    cluster.until_state(again, Job.State.SUCCEEDED)
    cluster.round()
    report = report_of(cluster, month_of(cluster.now.date()))
    assert by_job(report) == {
        "succeeded": 2, "failed": 1, "cancelled": 1, "timed_out": 0, "started": 3, "restarts": 1,
    }  # fmt: skip
    assert report.figures is not None
    assert 0 < (report.figures.wait_s or 0) <= (report.figures.wait_p95_s or 0)
    assert report.failed_gpu_hours
    assert report.lost_gpu_hours
    held_s = sum(attempt.ran_s(cluster.now) for attempt in Attempt.objects.all())
    assert report.gpu_hours > 0
    assert report.cost == pytest.approx(report.gpu_hours * 3600)
    (member,) = report.members
    assert (member.username, member.part) == ("ada", 1)
    assert member.gpu_hours * 3600 == pytest.approx(held_s, rel=0.01)


def test_a_job_with_a_begin_time_waits_from_then_on(march: Lab) -> None:
    """Of the waits of one and three hours the longer begins two hours later."""
    late = Job.objects.get(owner__username="bob")
    Job.objects.filter(pk=late.pk).update(begin_time=late.created_at + 2 * HOUR)
    figures = report_of(march).figures
    assert figures is not None
    assert figures.wait_s == pytest.approx(3600)


def test_waiting_restarts_and_waste_are_those_of_jobs_and_attempts_that_ended(march: Lab) -> None:
    report = report_of(march)
    assert by_job(report) == {
        "succeeded": 1, "failed": 1, "cancelled": 0, "timed_out": 0, "started": 2, "restarts": 1,
    }  # fmt: skip
    assert report.figures is not None
    assert report.figures.wait_s == pytest.approx(2 * 3600)
    assert report.figures.wait_p95_s == pytest.approx((1 + 0.95 * 2) * 3600)
    assert (report.lost_gpu_hours, report.failed_gpu_hours) == (pytest.approx(0.25), pytest.approx(1))
    shares = [(one.username, one.gpu_hours, one.work_gpu_hours, one.part) for one in report.members]
    assert shares == [("ada", *map(pytest.approx, (3, 4.5, 0.75))), ("bob", *map(pytest.approx, (1, 1.5, 0.25)))]


def test_time_of_a_member_is_that_within_the_month(lab: Lab) -> None:
    """Twelve hours from ten in the evening of 31 March: two of them are in March, the end is in April."""
    lab.node("n1", gpus=2)
    ended(lab, datetime(2026, 3, 31, 21, tzinfo=UTC), attempts=[(1, "succeeded", 12 * HOUR)], succeeded_after=13 * HOUR)
    march, april = (report_of(lab, first) for first in (MARCH, date(2026, 4, 1)))
    assert [one.gpu_hours for report in (march, april) for one in report.members] == pytest.approx([2, 10])
    assert (by_job(march)["succeeded"], by_job(april)["succeeded"]) == (0, 1)


def test_gpu_time_of_members_adds_up_to_that_of_their_team_between_two_rounds(lab: Lab) -> None:
    """The team's is that of the ledger, to which rounds add; nothing of a month is counted before the first of them."""
    lab.node("n1", gpus=2)
    start = datetime(2026, 3, 31, 23, 30, tzinfo=UTC)
    lab.attempt(lab.submit(), state="running", gpu_count=2, relative_speed=1.5, started_at=start)
    for minutes in (0, 20):
        accrue(start + timedelta(minutes=minutes))
    now = start + timedelta(minutes=20, seconds=45)
    (report,) = read_reports(MARCH, lab.user(), now)
    assert report.gpu_hours == pytest.approx(2 / 3)
    assert sum(one.gpu_hours for one in report.members) == pytest.approx(report.gpu_hours)
    assert sum(one.work_gpu_hours for one in report.members) == pytest.approx(report.work_gpu_hours)
    april = read_reports(date(2026, 4, 1), lab.user(), start + HOUR)
    assert [(one.gpu_hours, [member.gpu_hours for member in one.members]) for one in april] == [(0, [0])]


def test_without_a_price_no_cost_is_told(march: Lab) -> None:
    GpuType.objects.update(price_per_hour=0)
    DailyUsage.objects.create(team=march.team(), gpu_type=GpuType.objects.get(), day=MARCH, gpu_s=3600)
    assert report_of(march).cost is None
    GpuType.objects.update(price_per_hour=2)
    assert report_of(march).cost == pytest.approx(2)


def test_gpus_below_five_per_cent_are_idle_where_they_are_watched(march: Lab) -> None:
    assert report_of(march).idle_gpu_hours is None
    at = datetime(2026, 3, 10, 13, tzinfo=UTC)
    read = ReadEnergy(march.team().pk, GpuType.objects.get().pk, 0.0, 0.0, watched_gpu_s=3600.0, idle_gpu_s=900.0)
    add_energy_to_ledger([read], at, at + HOUR)
    assert report_of(march).idle_gpu_hours == pytest.approx(0.25)


def test_held_gpus_are_watched_by_the_service_itself(cluster: Lab) -> None:
    job = cluster.submit(UNTIL_LET_GO, gpus=2)
    cluster.running(job)
    for _ in range(3):
        cluster.ahead += timedelta(seconds=11)
        cluster.tick()
    day = DailyUsage.objects.get()
    assert day.watched_gpu_s > 0
    assert 0 <= day.idle_gpu_s <= day.watched_gpu_s


# -- kept ----------------------------------------------------------------------------------------------------------


def test_the_figures_stay_when_the_jobs_are_archived(march: Lab, settings: Settings) -> None:
    settings.MOTLEY_ARCHIVE_ROOT = march.root / "archive"
    before = report_of(march)
    march.submit()
    Job.objects.exclude(finished_at=None).update(files_deleted_at=march.now)
    now = datetime(2026, 4, 2, 1, tzinfo=UTC)
    delete_expired(now)
    assert TeamMonth.objects.get().month == MARCH
    delete_expired(now + 500 * DAY)
    assert not Job.objects.filter(finished_at__lt=now).exists()
    after = report_of(march)
    assert by_job(after) == by_job(before)
    assert after.members == before.members


def test_a_month_is_stored_once_and_not_before_it_is_over(march: Lab) -> None:
    close_month_when_due(datetime(2026, 3, 31, 23, tzinfo=UTC))
    assert not TeamMonth.objects.exists()
    for _ in range(2):
        close_month_when_due(datetime(2026, 5, 2, 1, tzinfo=UTC))
    assert [row.month for row in TeamMonth.objects.all()] == [MARCH]


def test_a_month_without_jobs_holds_up_none_after_it(march: Lab) -> None:
    ended(march, datetime(2026, 1, 5, tzinfo=UTC), attempts=[(1, "succeeded", HOUR)])
    DailyUsage.objects.create(team=march.team(), gpu_type=GpuType.objects.get(), day=date(2026, 2, 3), gpu_s=1)
    for _ in range(3):
        close_month_when_due(datetime(2026, 5, 2, 1, tzinfo=UTC))
    assert [row.month for row in TeamMonth.objects.order_by("month")] == [date(2026, 1, 1), MARCH]


def test_of_jobs_that_left_before_their_month_was_stored_it_says_so(march: Lab, settings: Settings) -> None:
    DailyUsage.objects.create(team=march.team(), gpu_type=GpuType.objects.get(), day=MARCH, gpu_s=3600)
    settings.MOTLEY_KEEP_JOBS = timedelta(days=1)
    report = report_of(march)
    assert (report.figures, report.members, report.gpu_hours) == (None, [], 1)
    browser = Client()
    browser.force_login(march.user())
    assert "are no longer known" in browser.get("/report?month=2026-03").content.decode()
    (told,) = caller(march.user()).get(REPORT, {"month": "2026-03"}).json()["teams"]
    assert (told["jobs"], told["lost_gpu_hours"]) == (None, None)


# -- who sees it, and how ------------------------------------------------------------------------------------------


def test_members_see_their_teams_and_staff_all(march: Lab) -> None:
    asked = {"month": "2026-03"}
    assert caller(march.user("eve", "speech")).get(REPORT, asked).json()["teams"] == []
    assert caller(march.user("eve", "speech")).get(REPORT, asked | {"team": "vision"}).json()["teams"] == []
    for user in (march.user(), march.user("root", "ops", staff=True)):
        (team,) = caller(user).get(REPORT, asked).json()["teams"]
        assert (team["team"], [one["username"] for one in team["members"]]) == ("vision", ["ada", "bob"])
        assert team["jobs"]["restarts"] == 1


@pytest.mark.parametrize("month", ["2026", "March", "2026-13", "2999-01", "9999-12", "0000-01", "2026-03-01"])
def test_a_wrong_month_is_refused_by_its_field(month: str, march: Lab) -> None:
    answer = caller(march.user()).get(REPORT, {"month": month})
    assert answer.status_code == 400
    assert [error["pointer"] for error in answer.json()["errors"]] == ["/month"]
    browser = Client()
    browser.force_login(march.user())
    assert browser.get("/report", {"month": month}).status_code == 404


def test_a_month_of_long_ago_is_named_as_it_was_asked_for_and_leads_to_the_first_report(march: Lab) -> None:
    DailyUsage.objects.create(team=march.team(), gpu_type=GpuType.objects.get(), day=MARCH, gpu_s=3600)
    asked = {"month": "0001-01"}
    answer = caller(march.user()).get(REPORT, asked).json()
    assert answer == {"month": "0001-01", "known_since": "2026-03", "currency": "", "teams": []}
    browser = Client()
    browser.force_login(march.user())
    page = browser.get("/report", asked).content.decode()
    assert "No job ran or ended in January 0001. Reports go back to March 2026." in page
    assert re.findall(r'rel="(\w+)" href="([^"]+)"', page)[-1:] == [("next", "?month=2026-03")]
    assert 'rel="prev"' not in page
    assert "report-0001-01.csv" in browser.get("/report", asked | {"format": "csv"})["Content-Disposition"]


def test_the_page_and_its_csv_have_the_month(march: Lab, settings: Settings) -> None:
    settings.MOTLEY_CURRENCY = "EUR"
    GpuType.objects.update(price_per_hour=2)
    DailyUsage.objects.create(team=march.team(), gpu_type=GpuType.objects.get(), day=MARCH, gpu_s=7200, work_gpu_s=3600)
    browser = Client()
    browser.force_login(march.user())
    page = browser.get("/report?month=2026-03").content.decode()
    assert "Report, March 2026" in page
    assert 'id="report-vision"' in page
    lines = browser.get("/report?month=2026-03&format=csv").getvalue().decode().splitlines()
    assert lines[0].startswith("month,team,kind,name,gpu_hours,work_gpu_hours,cost,currency,")
    assert lines[1].startswith("2026-03,vision,team,,2.0,1.0,4.0,EUR,")
    assert ",1,1,0,0,7200.0,10440.0,1,0.25,1.0," in lines[1]
    assert [line.split(",")[2:5] for line in lines[2:]] == [
        ["gpu_type", "a100", "2.0"], ["member", "ada", "3.0"], ["member", "bob", "1.0"],
    ]  # fmt: skip
    assert {line.count(",") for line in lines} == {20}
    over_rest = browser.get("/api/v1/report.csv?month=2026-03")
    assert (over_rest["Content-Type"], over_rest.getvalue().decode().splitlines()) == ("text/csv", lines)


def test_no_cell_of_a_csv_begins_a_formula(lab: Lab, plain_static: None) -> None:
    lab.node("n1")
    team = Team.objects.create(name="-1.1")
    its = {"team": team, "gpu_type": GpuType.objects.get()}
    DailyUsage.objects.create(**its, day=timezone.now().date(), gpu_s=3600)
    TeamMonth.objects.create(
        team=team, month=month_of(timezone.now().date()), members={str(lab.user("@SUM").pk): [3600, 3600]}
    )
    browser = Client()
    browser.force_login(lab.user("root", "ops", staff=True))
    for address in ("/report?format=csv", "/usage?format=csv"):
        lines = browser.get(address).getvalue().decode().splitlines()[1:]
        assert lines
        assert not [cell for line in lines for cell in line.split(",") if cell.startswith(("=", "+", "-", "@"))]


def test_a_year_of_jobs_takes_as_many_queries_as_one(march: Lab) -> None:
    ada = march.user()

    def queries() -> list[str]:
        with CaptureQueriesContext(connection) as asked:
            read_reports(MARCH, ada, march.now)
        return [query["sql"] for query in asked]

    before = len(queries())
    for day in range(20):
        ended(march, datetime(2026, 3, day + 1, tzinfo=UTC), owner=f"user{day % 4}", attempts=[(1, "succeeded", HOUR)])
    statements = queries()
    assert len(statements) == before == 10
    plans = [plan for sql in statements if "jobs_app_attempt" in sql or "jobs_app_job" in sql for plan in plan_of(sql)]
    assert not [plan for plan in plans if plan.startswith("SCAN jobs_app")], plans
