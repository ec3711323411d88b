"""Home: figures, cards and queue of one's own jobs, the cluster, and for staff what needs attention."""

import re
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from accounting_app.fairness.usage_ledger import TeamShare
from accounting_app.models import TeamBacklog
from insight_app.attention import starved_teams
from insight_app.models import JobForecast
from jobs_app.measurement.progress_curves import CurvePoint, note_points
from jobs_app.models import Attempt, Job, Team
from tests.pages.conftest import decide
from web.pages.charts import HEIGHT, area, sparkline, thinned


def words(client: Client) -> str:
    """The page's text with single spaces."""
    return " ".join(re.sub("<[^>]+>", " ", client.get(reverse("home")).content.decode()).split())


@pytest.fixture
def running(submit) -> Job:
    """A job that has run for a minute on two GPUs, and has reported losses."""
    job = submit(name="train", gpus=2, total_steps=1000)
    decide()
    began = timezone.now() - timedelta(minutes=1)
    Attempt.objects.update(state=Attempt.State.RUNNING, started_at=began)
    Job.objects.update(state=Job.State.RUNNING, started_at=began, step=250)
    for seconds, loss in ((0, 1.0), (30, 0.5), (60, 0.25)):
        note_points({job.pk: CurvePoint(began + timedelta(seconds=seconds), seconds, loss)})
    return job


def test_the_tiles_count_ones_own_jobs_and_gpus(running, submit, member, web):
    submit(name="waits")
    ended = submit(name="ended")
    times = {"finished_at": timezone.now(), "attained_gpu_s": 7200.0}
    Job.objects.filter(pk=ended.pk).update(state=Job.State.SUCCEEDED, **times)
    mine = web(member).get(reverse("home")).context["mine"]
    assert (mine.running, mine.waiting, mine.succeeded, mine.failed, mine.gpu_hours) == (1, 1, 1, 0, 2.0)
    assert mine.gpus == {running.attempts.get().gpu_type.name: 2}


def test_a_job_that_ended_before_yesterday_is_not_counted(submit, member, web):
    job = submit()
    Job.objects.filter(pk=job.pk).update(state=Job.State.FAILED, finished_at=timezone.now() - timedelta(hours=25))
    assert web(member).get(reverse("home")).context["mine"].failed == 0


def test_a_card_shows_progress_losses_and_the_expected_end(running, member, web):
    now = timezone.now()
    ends = {f"finish_{name}": now + timedelta(minutes=n) for name, n in (("low", 5), ("median", 6), ("high", 9))}
    JobForecast.objects.create(job=running.pk, made_at=now, **ends, place=0, queue=1)
    client = web(member)
    (card,) = client.get(reverse("home")).context["cards"]
    assert (card.loss, len(card.line.split())) == (0.25, 3)
    shown = words(client)
    assert "25 %" in shown
    assert "loss 0.25" in shown
    assert "done at" in shown


def test_an_array_that_runs_is_one_card_and_not_in_the_queue_too(submit, member, web):
    submit(name="sweep", array={"start": 0, "end": 29})
    decide()
    context = web(member).get(reverse("home")).context
    assert [(card.row.job.name, card.row.tasks.total) for card in context["cards"]] == [("sweep", 30)]
    assert context["queue"] == []


def test_the_queue_is_in_the_order_of_the_forecast_with_times(submit, member, web):
    now = timezone.now()
    for place, name in ((2, "second"), (1, "first")):
        job = submit(name=name)
        moments = {
            f"{what}_{part}": now + timedelta(minutes=4)
            for what in ("start", "finish")
            for part in ("low", "median", "high")
        }
        JobForecast.objects.create(job=job.pk, made_at=now, **moments, place=place, queue=2)
    client = web(member)
    assert [row.job.name for row in client.get(reverse("home")).context["queue"]] == ["first", "second"]
    assert re.search(r"1st of 2 first 1 .*in about 4 min.* 2nd of 2 second", words(client))


def test_everybody_sees_the_cluster_and_only_staff_what_needs_attention(running, member, staff, web):
    assert "A100" in words(web(member))
    assert "Last failures" not in words(web(member))
    assert "Last failures" in words(web(staff))


def test_staff_see_what_waits_who_is_starved_and_what_failed(submit, member, staff, web):
    submit(name="large", gpus=4)
    broken = submit(name="broken")
    Job.objects.filter(pk=broken.pk).update(
        state=Job.State.FAILED, finished_at=timezone.now(), reason="exit_code", message="exit code 3"
    )
    context = web(staff).get(reverse("home")).context
    assert [(row.reason, row.gpus, row.jobs) for row in context["pending"]] == [("next round", 4, 1)]
    assert [job.name for job in context["failures"]] == ["broken"]
    assert "exit code 3" in words(web(staff))


def test_starved_are_teams_that_wait_and_got_clearly_less_than_they_are_entitled_to():
    shares = [
        TeamShare(team, 1.0, entitled=0.25, delivered=delivered, gpu_hours=1.0, backlog_gpu_hours=behind)
        for team, delivered, behind in (("a", 0.1, 1.0), ("b", 0.1, 5.0), ("c", 0.24, 5.0), ("d", 0.1, 0.0))
    ]
    assert [share.team for share in starved_teams(shares)] == ["b", "a"]


def test_a_starved_team_is_named_to_staff_with_what_it_got(decided, staff, web):
    TeamBacklog.objects.update_or_create(team=Team.objects.get(name="language"), defaults={"cluster_s": 3600.0})
    assert "language got 0 % of its entitlement in 7 days and is 20 GPU-hours behind." in words(web(staff))


def test_only_a_demo_offers_a_burst_of_jobs(cluster, member: User, web, settings):
    client = web(member)
    assert "burst" not in words(client)
    assert client.post(reverse("submit-burst")).status_code == 404
    settings.MOTLEY_DEMO = True
    assert "Submit a burst of 8 sample jobs" in words(client)
    client.post(reverse("submit-burst"))
    assert Job.objects.filter(owner=member, tags__demo="yes").count() == 8


def test_a_line_keeps_to_its_box_whatever_the_values():
    assert sparkline([1.0]) == ""
    assert sparkline([2.0, 2.0]).split()[-1].startswith("100.0,")
    heights = [float(point.split(",")[1]) for point in sparkline([5.0, -1.0, 3.0], least=0.0, most=4.0).split()]
    assert min(heights) >= 0
    assert max(heights) <= HEIGHT
    assert area([0.0, 1.0], most=1.0).endswith(f"100,{HEIGHT:g}")


def test_a_long_curve_is_thinned_to_means():
    assert thinned([1.0, 3.0] * 60) == [2.0] * 60
