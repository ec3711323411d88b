"""What teams were entitled to and got, over an hour written by hand.

Vision (weight 2) runs all the hour on a GPU of speed 1.5; language (weight 1) waits for half of it, then runs on one
of speed 0.5. Either could use both GPUs.
"""

from datetime import UTC, datetime, timedelta
from math import e
from zoneinfo import ZoneInfo

import pytest
from django.db.models import Sum

from accounting_app.fairness.entitlement import ActiveTeam, active_teams, entitlement
from accounting_app.fairness.history import WINDOWS, cluster_states, fairness, hours_of_days
from accounting_app.fairness.usage_ledger import (
    MINUTE,
    TeamShare,
    accrue,
    jain_index_of_teams,
    periods_between,
    team_shares,
)
from accounting_app.models import GpuTypeUsage, LedgerCoverage, TeamBacklog, TeamUsage
from allocation.fairness import FORGOTTEN_S
from cluster_app.models import Gpu, GpuType, Node
from jobs_app.models import Attempt, GpuClaim, Job, JobArray, Team
from tests.service_lab import Lab, lab_of_rows
from tests.shared_rows import shared_rows

HOUR = timedelta(hours=1)
NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)
Running = Attempt.State.RUNNING


def pass_time(start: datetime, end: datetime, *, step: timedelta) -> None:
    while start < end:
        start += step
        accrue(start)


@shared_rows
def hour() -> Lab:
    """The hour before one o'clock, in the ledger."""
    lab = lab_of_rows()
    lab.node("n1", gpus=2)
    lab.team("vision", weight=2)
    elastic = {"min": 1, "max": 2}
    seeing = lab.submit(gpus=elastic)
    speaking = lab.submit(gpus=elastic, owner=lab.user("bob", "language"))
    LedgerCoverage.extend(NOON)
    lab.attempt(seeing, state=Running, started_at=NOON, relative_speed=1.5)
    pass_time(NOON, NOON + HOUR / 2, step=timedelta(seconds=45))
    lab.attempt(speaking, state=Running, started_at=NOON + HOUR / 2, relative_speed=0.5)
    pass_time(NOON + HOUR / 2, NOON + HOUR, step=timedelta(seconds=45))
    return lab


def of_team(name: str, column: str) -> float:
    return float(TeamUsage.objects.filter(team__name=name).aggregate(sum=Sum(column))["sum"])


@pytest.mark.parametrize(("team", "seconds"), [("vision", 2400), ("language", 1200)])
def test_entitlement_follows_the_weights(hour: Lab, team: str, seconds: float) -> None:
    assert of_team(team, "entitled_share_s") == pytest.approx(seconds)


@pytest.mark.parametrize(("team", "gpu_s"), [("vision", 3600), ("language", 1800)])
def test_gpu_seconds_are_those_of_the_attempts(hour: Lab, team: str, gpu_s: float) -> None:
    assert of_team(team, "gpu_s") == pytest.approx(gpu_s)


@pytest.mark.parametrize(("team", "work"), [("vision", 5400), ("language", 900)])
def test_work_is_weighed_by_speed(hour: Lab, team: str, work: float) -> None:
    assert of_team(team, "work_gpu_s") == pytest.approx(work)


def test_entitlements_add_up_to_the_whole_cluster_in_every_minute(hour: Lab) -> None:
    sums = TeamUsage.objects.values("minute").annotate(sum=Sum("entitled_share_s")).order_by("minute")
    assert [row["sum"] for row in sums] == pytest.approx([60.0] * 60)


def test_shares_of_what_was_delivered_add_up(hour: Lab) -> None:
    shares = {share.team: share for share in team_shares(NOON)}
    assert [shares[name].delivered for name in ("vision", "language")] == pytest.approx([6 / 7, 1 / 7])


def test_the_ratio_is_what_was_delivered_over_what_was_due(hour: Lab) -> None:
    shares = {share.team: share for share in team_shares(NOON)}
    assert [shares[name].ratio for name in ("vision", "language")] == pytest.approx([9 / 7, 3 / 7])


def test_a_backlog_is_shown_in_gpu_hours_of_the_cluster(hour: Lab) -> None:
    shares = {share.team: share.backlog_gpu_hours for share in team_shares(NOON)}
    backlogs_s = dict(TeamBacklog.objects.values_list("team__name", "cluster_s"))
    assert backlogs_s["language"] > 0
    assert shares == pytest.approx({team: 2 * cluster_s / 3600 for team, cluster_s in backlogs_s.items()})


def test_jains_index_of_the_hour(hour: Lab) -> None:
    assert jain_index_of_teams(team_shares(NOON)) == pytest.approx(0.8)


def test_busy_and_present_gpu_seconds_of_a_type(hour: Lab) -> None:
    sums = GpuTypeUsage.objects.aggregate(busy=Sum("busy_gpu_s"), present=Sum("present_gpu_s"))
    assert (sums["busy"], sums["present"]) == pytest.approx((5400, 7200))


def test_accruing_again_at_the_same_moment_adds_nothing(hour: Lab) -> None:
    accrue(NOON + HOUR)
    assert of_team("vision", "gpu_s") == pytest.approx(3600)


def test_a_team_without_jobs_is_entitled_to_nothing(hour: Lab) -> None:
    hour.team("idle", weight=10)
    accrue(NOON + HOUR + timedelta(minutes=1))
    assert not TeamUsage.objects.filter(team__name="idle").exists()


def test_a_team_whose_jobs_are_all_held_is_entitled_to_nothing(lab: Lab) -> None:
    lab.node("n1")
    lab.submit()
    Job.objects.update(held=True)
    LedgerCoverage.extend(NOON)
    accrue(NOON + HOUR / 2)
    assert not TeamUsage.objects.exists()


def test_what_could_not_start_is_no_demand(lab: Lab) -> None:
    lab.node("n1", gpus=8)
    first = lab.submit(gpus=1, owner=lab.user("bob", "language"))
    lab.submit(gpus=4, owner=first.owner, after=[{"job": str(first.pk)}])
    paused, held = lab.submit(gpus=4), lab.submit(gpus=4)
    Job.objects.filter(pk=paused.pk).update(eligible_at=lab.now + timedelta(seconds=60))
    Job.objects.filter(pk=held.pk).update(held=True)
    assert {str(Team.objects.get(pk=team)): one for team, one in active_teams(lab.now).items()} == {
        "language": ActiveTeam(weight=1, demand=1, waiting=1)
    }


def test_of_an_array_what_its_limit_lets_start_is_demand(lab: Lab) -> None:
    lab.node("n1", gpus=8)
    lab.submit(gpus={"min": 2, "max": 4}, array={"start": 0, "end": 99, "at_a_time": 5})
    lab.submit(gpus=1)
    tasks = list(Job.objects.exclude(array=None).order_by("array_index"))
    Job.objects.filter(pk__in=[task.pk for task in tasks[:2]]).update(state=Job.State.RUNNING)
    (team,) = active_teams(lab.now).values()
    assert (team.waiting, team.demand) == (3 * 2 + 1, 5 * 4 + 1)
    JobArray.objects.update(at_a_time=1)
    (team,) = active_teams(lab.now).values()
    assert (team.waiting, team.demand) == (1, 2 * 4 + 1)


def test_a_team_whose_jobs_all_have_a_later_begin_time_is_entitled_to_nothing(lab: Lab) -> None:
    lab.node("n1")
    lab.submit()
    Job.objects.update(begin_time=NOON + timedelta(days=1))
    LedgerCoverage.extend(NOON)
    accrue(NOON + HOUR / 2)
    assert not TeamUsage.objects.exists()


def test_of_a_long_outage_only_the_last_hour_is_told(lab: Lab) -> None:
    lab.node("n1")
    lab.submit()
    LedgerCoverage.extend(NOON - 5 * HOUR)
    accrue(NOON)
    assert of_team("vision", "entitled_share_s") == pytest.approx(3600)


def test_an_interval_is_cut_at_the_minutes() -> None:
    cut = list(periods_between(NOON + timedelta(seconds=50), NOON + timedelta(seconds=130), MINUTE))
    minutes = [NOON + timedelta(minutes=n) for n in range(3)]
    assert cut == list(zip(minutes, (10, 60, 10), strict=True))


def test_a_team_is_entitled_to_no_more_than_its_jobs_can_use() -> None:
    active = {1: ActiveTeam(weight=8, demand=2), 2: ActiveTeam(weight=1, demand=10), 3: ActiveTeam(weight=1, demand=10)}
    assert entitlement(active, gpus=10) == pytest.approx({1: 0.2, 2: 0.4, 3: 0.4})


def test_without_an_active_team_nothing_is_entitled() -> None:
    assert entitlement({}, gpus=4) == {}


def test_a_team_is_behind_by_what_it_did_not_receive(lab: Lab) -> None:
    """Vision runs alone for half an hour in which language was entitled to a third."""
    lab.node("n1", gpus=2)
    lab.team("vision", weight=2)
    elastic = {"min": 1, "max": 2}
    seeing = lab.submit(gpus=elastic)
    lab.submit(gpus=elastic, owner=lab.user("bob", "language"))
    LedgerCoverage.extend(NOON)
    lab.attempt(seeing, state=Running, started_at=NOON)
    accrue(NOON + HOUR / 2)
    backlogs = dict(TeamBacklog.objects.values_list("team__name", "cluster_s"))
    assert backlogs == pytest.approx({"vision": 0, "language": 600})


def test_a_backlog_is_forgotten_over_hours(lab: Lab) -> None:
    TeamBacklog.objects.create(team=lab.team("vision"), cluster_s=100)
    LedgerCoverage.extend(NOON)
    pass_time(NOON, NOON + timedelta(seconds=FORGOTTEN_S), step=timedelta(minutes=30))
    assert TeamBacklog.objects.get().cluster_s == pytest.approx(100 / e)


def shares(*delivered: float) -> list[TeamShare]:
    return [TeamShare(str(n), 1, 1 / len(delivered), got, 0, 0) for n, got in enumerate(delivered)]


@pytest.mark.parametrize(("delivered", "index"), [((0.5, 0.5), 1.0), ((1.0, 0.0), 0.5), ((1.0, 0.0, 0.0, 0.0), 0.25)])
def test_jains_index_goes_from_one_for_all_to_one_over_n(delivered: tuple[float, ...], index: float) -> None:
    assert jain_index_of_teams(shares(*delivered)) == pytest.approx(index)


def test_jains_index_of_nothing_is_unknown() -> None:
    assert jain_index_of_teams([]) is None


def test_gpus_that_start_that_are_out_of_service_and_that_are_asked_for_are_told(lab: Lab) -> None:
    lab.node("n1", gpus=2)
    lab.node("n2", gpus=3)
    Node.objects.filter(name="n2").update(state=Node.State.CORDONED, reason="fan")
    held = lab.attempt(lab.submit(gpus=1), state=Attempt.State.LAUNCHING)
    GpuClaim.objects.create(gpu=Gpu.objects.filter(node__name="n1")[0], attempt=held, held_from=NOON)
    Job.objects.filter(pk=held.job_id).update(state=Job.State.STARTING)
    lab.submit(gpus=2)
    LedgerCoverage.extend(NOON)
    accrue(NOON + MINUTE)
    sums = GpuTypeUsage.objects.aggregate(*map(Sum, ("busy_gpu_s", "starting_gpu_s", "out_gpu_s", "present_gpu_s")))
    assert [*sums.values()] == pytest.approx([0, 60, 180, 300])
    assert TeamUsage.objects.aggregate(sum=Sum("waiting_gpu_s"))["sum"] == pytest.approx(120)
    (state,) = cluster_states(WINDOWS["1h"], NOON + 2 * MINUTE)
    assert (state.starting, state.out, state.idle, state.waiting, state.demand) == pytest.approx((1, 3, 1, 2, 3))
    assert cluster_states(WINDOWS["1h"], NOON + MINUTE / 2) == []


@pytest.mark.parametrize("key", ["1h", "24h", "7d"])
def test_constant_use_is_constant_from_the_first_point_to_the_last(lab: Lab, key: str) -> None:
    lab.node("n1")
    kind, team, now = GpuType.objects.get(), lab.team(), NOON + 5 * MINUTE + timedelta(seconds=20)
    window = WINDOWS[key]
    minutes = [now.replace(second=0) - n * MINUTE for n in range(1, int((window.length + window.bucket) / MINUTE))]
    used, whole = {"busy_gpu_s": 300.0, "present_gpu_s": 600.0}, {"work_gpu_s": 300.0, "waiting_gpu_s": 60.0}
    begun = now.replace(second=0)  # and 20 s of the present minute
    GpuTypeUsage.objects.bulk_create(
        [GpuTypeUsage(gpu_type=kind, minute=minute, **used) for minute in minutes]
        + [GpuTypeUsage(gpu_type=kind, minute=begun, busy_gpu_s=100.0, present_gpu_s=200.0)]
    )
    TeamUsage.objects.bulk_create(
        [TeamUsage(team=team, minute=minute, **whole) for minute in minutes]
        + [TeamUsage(team=team, minute=begun, work_gpu_s=100.0, waiting_gpu_s=20.0)]
    )
    states, points = cluster_states(window, now), fairness(window, now)
    assert {(state.busy, state.idle, state.waiting) for state in states} == {(5.0, 5.0, 1.0)}
    assert [point.gpus for point in points] == pytest.approx([5.0] * len(points))
    assert (states[0].at, points[0].at) == (window.since(now), window.since(now))
    assert len(points) == len(states) + 1 >= window.length / window.bucket - 1


def test_utilization_is_told_by_day_and_hour(lab: Lab) -> None:
    lab.node("n1")
    kind = GpuType.objects.get()
    for minute, busy in ((NOON, 60), (NOON + MINUTE, 0), (NOON - timedelta(days=1), 30)):
        GpuTypeUsage.objects.create(gpu_type=kind, minute=minute, busy_gpu_s=busy, present_gpu_s=60)
    today, yesterday = hours_of_days(NOON + HOUR)
    assert (today.day, today.hours[12], today.hours[11]) == (NOON.date(), 0.5, None)
    assert yesterday.hours[12] == 0.5
    (local, _) = hours_of_days(NOON + HOUR, ZoneInfo("Asia/Kathmandu"))  # 17:45 there
    assert (local.hours[17], local.hours[12]) == (0.5, None)


def test_a_round_whose_engines_were_heard_before_its_end_moves_it_not_back(lab: Lab) -> None:
    """As after an upgrade: the first turn of the engines began before the latest round. A clock far ahead is no end."""
    lab.node("n1", gpus=2)
    LedgerCoverage.extend(NOON)
    lab.attempt(lab.submit(), state=Running, started_at=NOON - HOUR, relative_speed=1)
    accrue(NOON - MINUTE)
    accrue(NOON + MINUTE)
    assert of_team("vision", "gpu_s") == pytest.approx(60)
    LedgerCoverage.extend(NOON + 3 * HOUR)
    accrue(NOON + MINUTE)
    assert LedgerCoverage.covered_until() == NOON + MINUTE
