"""Budgets of teams: a hard one stops starts until its reset, a soft one lowers the team's share; both are told."""

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from accounting_app.fairness.budgets import TeamBudget, read_budgets
from accounting_app.fairness.usage_ledger import accrue
from accounting_app.models import DailyUsage, LedgerCoverage, TeamUsage
from allocation.budgets import KINDS, PERIODS, period_around
from allocation.fairness import LEAST_WEIGHT_PART, weight_within_budget
from cluster_app.models import GpuType
from insight_app.explain.dry_run import dry_run
from insight_app.explain.what_if import what_would_start
from insight_app.models import JobForecast
from insight_app.start_forecasts.showing import why_none
from jobs_app.models import Budget, Job, JobEvent, Reason, Team
from scheduler_app.models import PolicySetting
from scheduler_app.round.run_round import take_snapshot
from tests.insight.forecast_cluster import forecast_now
from tests.rest_callers import caller
from tests.service_lab import UNTIL_LET_GO, Lab

HOUR, DAY = timedelta(hours=1), timedelta(days=1)


@pytest.fixture
def cluster(lab: Lab) -> Lab:
    lab.node("n1", gpus=2)
    lab.policy("max_min_fairness", round_s=1)
    return lab


def budget(lab: Lab, team: str = "vision", *, used: float = 0, **columns: Any) -> Budget:
    """Of 100 GPU-hours a week, of which so many are used today."""
    given = {"gpu_hours": 100.0, "period": Budget.Period.WEEK, "kind": Budget.Kind.HARD} | columns
    made = Budget.objects.create(team=lab.team(team), **given)
    use(lab, used, team)
    return made


def use(lab: Lab, gpu_hours: float, team: str = "vision") -> None:
    """Work of the team today, on average GPUs."""
    amounts = {"gpu_s": gpu_hours * 3600, "work_gpu_s": gpu_hours * 3600}
    its = {"team": lab.team(team), "gpu_type": GpuType.objects.get(), "day": lab.now.date()}
    DailyUsage.objects.update_or_create(**its, defaults=amounts)


def before_its_reset(lab: Lab, time: timedelta) -> datetime:
    """Put the clock forward to so long before the end of a week: no reset, however late the test runs, comes sooner."""
    first, _ = period_around((lab.now + 7 * DAY).date(), "week")
    resets_at = datetime(first.year, first.month, first.day, tzinfo=UTC)
    lab.ahead += resets_at - time - lab.now
    return resets_at


def fresh(job: Job) -> Job:
    job.refresh_from_db()
    return job


def of_team(lab: Lab, team: str = "vision") -> TeamBudget:
    return read_budgets(lab.now)[lab.team(team).pk]


def half_of_a_week(used: float, kind: str = "soft") -> TeamBudget:
    began = datetime(2026, 11, 23, tzinfo=UTC)
    return TeamBudget(1, "vision", "week", kind, 100.0, used, began, began + 7 * DAY, began + 3.5 * DAY)


# -- the rule: pure ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("day", "period", "first", "following"),
    [
        (date(2026, 11, 25), "week", date(2026, 11, 23), date(2026, 11, 30)),
        (date(2026, 11, 25), "month", date(2026, 11, 1), date(2026, 12, 1)),
        (date(2026, 12, 31), "month", date(2026, 12, 1), date(2027, 1, 1)),
        (date(2026, 11, 25), "quarter", date(2026, 10, 1), date(2027, 1, 1)),
        (date(2026, 2, 28), "quarter", date(2026, 1, 1), date(2026, 4, 1)),
    ],
)
def test_periods_are_those_of_the_calendar(day: date, period: str, first: date, following: date) -> None:
    assert period_around(day, period) == (first, following)


def test_the_core_knows_the_periods_and_kinds_of_the_database() -> None:
    assert (list(PERIODS), list(KINDS)) == (Budget.Period.values, Budget.Kind.values)


@pytest.mark.parametrize(
    ("used", "elapsed", "part"),
    [(0, 0, 1), (0.5, 0.5, 1), (0.2, 0.5, 1), (0.75, 0.5, 0.5), (0.5, 0, 0.5), (1, 0.5, LEAST_WEIGHT_PART)],
)
def test_the_weight_is_the_pace_that_is_left(used: float, elapsed: float, part: float) -> None:
    assert weight_within_budget(used, elapsed) == pytest.approx(part)


@pytest.mark.parametrize("elapsed", [0.0, 0.999999, 1.0])
@pytest.mark.parametrize("used", [1.000001, 7, 1e6])
def test_no_weight_is_ever_zero(used: float, elapsed: float) -> None:
    assert weight_within_budget(used, elapsed) == LEAST_WEIGHT_PART


def test_the_projection_is_that_of_the_pace_so_far() -> None:
    quick, slow = half_of_a_week(80), half_of_a_week(40)
    assert quick.expected_gpu_hours == pytest.approx(160)
    assert quick.used_up_at == quick.began_at + timedelta(days=3.5 / 0.8)
    assert slow.used_up_at is None
    assert "100 reference GPU-hours (80%) of this week, faster than time passes" in quick.warning
    assert not slow.warning
    assert "used up by 2026-11-27 09:00 UTC" in half_of_a_week(80, "hard").warning


# -- hard ----------------------------------------------------------------------------------------------------------


def test_a_hard_budget_that_is_used_up_stops_starts_until_its_reset(cluster: Lab) -> None:
    budget(cluster, used=101)
    job, other = cluster.submit(), cluster.submit(owner=cluster.user("bob", "speech"))
    cluster.until_state(other, Job.State.SUCCEEDED)
    assert (fresh(job).state, job.reason) == (Job.State.QUEUED, Reason.BUDGET)
    resets_at = of_team(cluster).resets_at
    assert job.message == (
        "Team vision has used up its budget: 101 of 100 reference GPU-hours (101%) of this week. "
        f"Its jobs start again from {resets_at:%F} 00:00 UTC on."
    )
    assert job.reasons[0]["numbers"]["resets_at"] == resets_at.isoformat()
    cluster.ahead += resets_at - cluster.now
    cluster.until_state(job, Job.State.SUCCEEDED)


def test_a_larger_budget_lets_its_jobs_start(cluster: Lab) -> None:
    budget(cluster, used=101)
    job = cluster.submit()
    cluster.round()
    assert fresh(job).reason == Reason.BUDGET
    Budget.objects.update(gpu_hours=200)
    cluster.until_state(job, Job.State.SUCCEEDED)


def test_jobs_that_run_go_on_when_it_is_used_up(cluster: Lab) -> None:
    budget(cluster, used=99)
    runs = cluster.submit(UNTIL_LET_GO)
    cluster.running(runs)
    use(cluster, 101)
    waits = cluster.submit()
    for _ in range(3):
        cluster.round()
    assert (fresh(runs).state, len(cluster.attempts(runs))) == (Job.State.RUNNING, 1)
    assert fresh(waits).reason == Reason.BUDGET


def test_what_its_jobs_did_is_counted_with_their_speed(cluster: Lab) -> None:
    """Half an hour on two GPUs of twice the average speed is two reference GPU-hours."""
    before_its_reset(cluster, 3 * DAY)
    budget(cluster, gpu_hours=2)
    job = cluster.submit(gpus=2)
    LedgerCoverage.extend(cluster.now)
    cluster.attempt(job, state="running", started_at=cluster.now, relative_speed=2.0, gpu_count=2)
    accrue(cluster.now + HOUR / 2)
    found = of_team(cluster)
    assert found.used_gpu_hours == pytest.approx(2, rel=0.01)


def test_jobs_that_wait_for_it_earn_no_share(cluster: Lab) -> None:
    before_its_reset(cluster, 3 * DAY)
    budget(cluster, used=101)
    cluster.submit(), cluster.submit(owner=cluster.user("bob", "speech"))
    LedgerCoverage.extend(cluster.now)
    accrue(cluster.now + HOUR)
    assert {row.team.name for row in TeamUsage.objects.filter(entitled_share_s__gt=0)} == {"speech"}


def test_forecasts_let_no_job_of_its_start_before_the_reset(cluster: Lab) -> None:
    resets_at = before_its_reset(cluster, 5 * HOUR)
    budget(cluster, used=101)
    waits, other = cluster.submit(), cluster.submit(owner=cluster.user("bob", "speech"))
    forecast_now(cluster)
    found, beside = JobForecast.objects.get(job=waits.pk), JobForecast.objects.get(job=other.pk)
    assert found.start_low is not None
    assert found.start_low >= resets_at
    assert beside.start_high is not None
    assert beside.start_high < resets_at


def test_with_a_reset_beyond_the_horizon_the_job_says_why_it_has_no_forecast(cluster: Lab) -> None:
    before_its_reset(cluster, 4 * DAY)
    budget(cluster, used=101)
    waits = cluster.submit()
    cluster.round()
    forecast_now(cluster, 9)
    assert not JobForecast.objects.filter(job=waits.pk).exists()
    assert why_none(fresh(waits)).startswith("The job waits for the budget of its team")


# -- soft ----------------------------------------------------------------------------------------------------------


def test_a_soft_budget_that_is_used_up_lowers_the_teams_share(cluster: Lab) -> None:
    before_its_reset(cluster, 3 * DAY)
    budget(cluster, used=101, kind=Budget.Kind.SOFT)
    for owner in (cluster.user(), cluster.user("bob", "speech")):
        cluster.submit(gpus=2, owner=owner)
    snapshot, _, rows, _ = take_snapshot(cluster.now, PolicySetting.objects.current())
    its, other = snapshot.problem.weight
    assert its / other == pytest.approx(LEAST_WEIGHT_PART)
    assert rows.teams[cluster.team().pk].weight == pytest.approx(LEAST_WEIGHT_PART)
    LedgerCoverage.extend(cluster.now)
    accrue(cluster.now + HOUR)
    entitled = dict(TeamUsage.objects.order_by("minute").values_list("team__name", "entitled_share_s"))
    assert entitled["vision"] / entitled["speech"] == pytest.approx(LEAST_WEIGHT_PART)


def test_its_jobs_still_run_on_idle_gpus(cluster: Lab) -> None:
    budget(cluster, used=500, kind=Budget.Kind.SOFT)
    cluster.until_state(cluster.submit(), Job.State.SUCCEEDED)


# -- told ----------------------------------------------------------------------------------------------------------


def test_plan_and_what_if_name_the_budget_and_its_reset(cluster: Lab) -> None:
    budget(cluster, used=101)
    plan = dry_run({"name": "a", "command": "true", "gpus": 1}, owner=cluster.user())
    assert plan["note"].startswith("Team vision has used up its budget: 101 of 100")
    assert not any(option["can_start_now"] for option in plan["options"])
    job = cluster.submit()
    cluster.round()
    assert what_would_start(fresh(job), cluster.now).note.startswith("Team vision has used up its budget")


def test_a_plan_warns_of_a_soft_budget(cluster: Lab) -> None:
    budget(cluster, used=101, kind=Budget.Kind.SOFT)
    note = dry_run({"name": "a", "command": "true", "gpus": 1}, owner=cluster.user())["note"]
    assert note.startswith("GPUs are free now")
    assert "its weight is 5% of what it was." in note


def test_over_rest_a_submitted_job_says_at_once_that_it_waits(cluster: Lab) -> None:
    budget(cluster, used=101)
    spec = {"name": "a", "command": "true", "gpus": 1}
    answer = caller(cluster.user()).post("/api/v1/jobs", spec, format="json")
    assert (answer.status_code, answer.json()["reason"]) == (201, "budget")
    assert "Its jobs start again from" in answer.json()["message"]
    caller(cluster.user()).post("/api/v1/jobs/batch", {"jobs": [spec]}, format="json")
    assert JobEvent.objects.filter(kind="submitted", message__contains="used up its budget").count() == 2


# -- who sees it, and what it costs --------------------------------------------------------------------------------


def test_over_rest_teams_tell_their_budgets(cluster: Lab) -> None:
    budget(cluster, used=40)
    budget(cluster, "speech", kind=Budget.Kind.SOFT)
    (team,) = caller(cluster.user()).get("/api/v1/teams").json()["results"]
    its = team["budget"]
    assert (its["kind"], its["period"], its["gpu_hours"], its["used_gpu_hours"]) == ("hard", "week", 100.0, 40.0)
    assert (its["is_used_up"], its["weight_part"]) == (False, 1.0)
    assert its["resets_at"] == f"{of_team(cluster).resets_at:%FT%TZ}"


@pytest.mark.parametrize("address", ["/usage", "/fairness"])
def test_pages_show_members_the_budgets_of_their_teams_and_staff_all(
    address: str, cluster: Lab, plain_static: None
) -> None:
    budget(cluster, used=101)
    budget(cluster, "speech", kind=Budget.Kind.SOFT)
    for user, seen in ((cluster.user(), [True, False]), (cluster.user("root", "ops", staff=True), [True, True])):
        browser = Client()
        browser.force_login(user)
        page = browser.get(address).content.decode()
        assert [f'id="budget-{team}"' in page for team in ("vision", "speech")] == seen
        assert "waiting jobs wait for the reset" in page


def test_metrics_have_it(cluster: Lab) -> None:
    budget(cluster, used=40)
    text = Client().get("/metrics").content.decode()
    assert 'motley_team_budget_gpu_hours{kind="hard",team="vision"} 100.0' in text
    assert 'motley_team_budget_used_gpu_hours{team="vision"} 40.0' in text


def test_an_administrator_gives_a_team_a_budget_and_a_wrong_one_is_refused(cluster: Lab, plain_static: None) -> None:
    browser, team = Client(), cluster.team()
    browser.force_login(cluster.user("root", "ops", staff=True))
    address = f"/admin/jobs_app/team/{team.pk}/change/"
    plain = {"name": "vision", "weight": 1, "max_job_weight": 1, "volunteers": team.volunteers}
    counts = {"budget-TOTAL_FORMS": 1, "budget-INITIAL_FORMS": 0, "quotas-TOTAL_FORMS": 0, "quotas-INITIAL_FORMS": 0}
    inline = {**counts, "budget-0-period": "month", "budget-0-kind": "hard"}
    refused = browser.post(address, plain | inline | {"budget-0-gpu_hours": "-3"})
    assert "Write from 0.001 to 1000000000 GPU-hours" in refused.content.decode()
    assert browser.post(address, plain | inline | {"budget-0-gpu_hours": "250"}).status_code == 302
    assert str(Budget.objects.get()) == "250 reference GPU-hours a month of vision, hard"


def test_the_number_of_queries_does_not_grow_with_teams_and_days(cluster: Lab) -> None:
    def count() -> int:
        with CaptureQueriesContext(
            connection,
        ) as queries:
            read_budgets(cluster.now)
        return len(queries)

    assert count() == 1
    for number in range(5):
        budget(cluster, f"team{number}", used=1, period=Budget.Period.values[number % 3])
    assert count() == 2


@pytest.mark.parametrize("hours", [0, -1, 1e12])
def test_the_database_refuses_a_budget_out_of_range(hours: float, cluster: Lab) -> None:
    with pytest.raises(ValidationError, match=r"Write from 0.001 to 1000000000"):
        Budget(team=Team.objects.create(name="x"), gpu_hours=hours).full_clean()
