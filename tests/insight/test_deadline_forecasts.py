"""Whether jobs meet their deadlines: told from futures, kept, completed by what came, and judged."""

import io
import re
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.db import IntegrityError, connection, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from rich.console import Console

from estimation.accuracy import FEWEST
from insight_app.explain import plan_forecast
from insight_app.explain.decisions import explain_job
from insight_app.explain.plan_forecast import forecast_plan
from insight_app.models import DeadlineForecast, JobForecast
from insight_app.start_forecasts.deadlines import KnownOutcome, OpenDeadline, close_deadlines, outcomes_of_deadlines
from insight_app.start_forecasts.forecast_store import Ending
from insight_app.start_forecasts.showing import read_forecast
from jobs_app.models import Job
from jobs_app.submission.submit import admitted
from motley_command.tables.jobs import explanation
from operations.retention import delete_expired
from tests.insight.forecast_cluster import RATE, forecast_now, running, submitted
from tests.service_lab import Lab

HOUR = timedelta(hours=1)
State = Job.State


@pytest.fixture
def cluster(lab: Lab) -> Lab:
    """One GPU, in the order of submission."""
    lab.node("n1", "a100", gpus=1)
    lab.policy("fifo", round_s=60)
    return lab


def due_in(lab: Lab, after: timedelta) -> dict[str, Any]:
    return {"deadline": (lab.now + after).isoformat()}


def told(job: Job) -> float | None:
    job.refresh_from_db()
    found = read_forecast(job)
    assert found is not None
    return found.in_time


def kept(lab: Lab, number: int, *, in_time: float, met: bool | None, team: str = "vision") -> DeadlineForecast:
    made_at = lab.now - HOUR + number * timedelta(seconds=1)
    known_at = None if met is None else made_at + timedelta(minutes=10)
    return DeadlineForecast.objects.create(
        job=uuid4(),
        team=lab.team(team),
        deadline=made_at + timedelta(minutes=10),
        made_at=made_at,
        in_time=in_time,
        met=met,
        known_at=known_at,
    )


# -- told and kept -------------------------------------------------------------------------------------------------


def test_jobs_that_run_and_wait_are_told_how_probably_they_meet_their_deadlines(cluster: Lab) -> None:
    runs = submitted(cluster, minutes=60, **due_in(cluster, 2 * HOUR))
    running(cluster, runs)
    late, waits, without = (
        submitted(cluster, minutes=60, **due) for due in (due_in(cluster, HOUR), due_in(cluster, 5 * HOUR), {})
    )
    assert forecast_now(cluster).message == ""
    assert (told(runs) or 0) > 0.9
    assert (told(late) or 1) < 0.1, "it waits for an hour"
    assert (told(waits) or 0) > 0.9
    assert told(without) is None
    assert {one.job: one.in_time for one in DeadlineForecast.objects.all()} == {
        job.pk: told(job) for job in (runs, late, waits)
    }


def test_after_the_deadline_was_changed_the_next_forecast_tells_of_it(cluster: Lab) -> None:
    job = submitted(cluster, minutes=60, **due_in(cluster, 2 * HOUR))
    forecast_now(cluster)
    Job.objects.filter(pk=job.pk).update(deadline=cluster.now + 30 * HOUR / 60)
    assert told(job) is None
    forecast_now(cluster, number=2)
    assert (told(job) or 1) < 0.1


def test_a_plan_tells_it_too(cluster: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_forecast, "BUDGET_S", 30.0)  # on a busy machine, too
    spec = {"name": "net", "team": "vision", "command": "true", "gpus": 1, "rates": {"a100": RATE}}
    asked = {**spec, "total_steps": int(3600 * RATE), **due_in(cluster, 2 * HOUR)}
    user = cluster.user()
    found, why_none, *_ = forecast_plan(admitted(asked, user, administrator=False), user, timezone.now())
    assert found is not None, why_none
    assert (found.in_time or 0) > 0.9


@pytest.mark.usefixtures("plain_static")
def test_page_rest_and_explanation_say_the_same(cluster: Lab, client: Client) -> None:
    job = submitted(cluster, minutes=60, **due_in(cluster, 2 * HOUR))
    running(cluster, job)
    forecast_now(cluster)
    JobForecast.objects.update(in_time=0.87)
    client.force_login(cluster.user())
    page = " ".join(client.get(f"/jobs/{job.pk}").content.decode().split())
    assert re.search(r"Meets its deadline at <time [^>]*>.*with a probability of 87 %\.", page)
    assert "as far as losses of nodes decide it" not in page, "one probability, not two"
    assert client.get(f"/api/v1/jobs/{job.pk}/forecast").json()["forecast"]["in_time"] == 0.87
    job.refresh_from_db()
    outlook = explain_job(job, cluster.now)["deadline"]
    assert (outlook.in_time, outlook.deadline) == (0.87, job.deadline)
    assert client.get(f"/api/v1/jobs/{job.pk}/explain").json()["deadline"]["in_time"] == 0.87
    Job.objects.filter(pk=job.pk).update(deadline=None)
    assert client.get(f"/api/v1/jobs/{job.pk}/explain").json()["deadline"] is None


# -- completed -----------------------------------------------------------------------------------------------------


def test_a_deadline_that_has_passed_is_said_to_have_passed(cluster: Lab, client: Client) -> None:
    job = submitted(cluster, minutes=10)
    passed = timezone.now() - timedelta(hours=2)
    Job.objects.filter(pk=job.pk).update(deadline=passed)
    client.force_login(cluster.user())
    told = client.get(f"/api/v1/jobs/{job.pk}/explain").json()
    assert (told["deadline"]["passed"], told["deadline"]["in_time"]) == (True, 0.0)
    words = io.StringIO()
    shown = client.get(f"/api/v1/jobs/{job.pk}").json()
    Console(file=words, width=200).print(explanation(shown, told, now=timezone.now()))
    assert "has passed 2h ago: the job is late" in words.getvalue()
    Job.objects.filter(pk=job.pk).update(state="succeeded", finished_at=timezone.now())
    assert client.get(f"/api/v1/jobs/{job.pk}/explain").json()["deadline"] is None


def test_an_outcome_is_known_once_the_job_is_done_or_its_deadline_has_passed() -> None:
    deadline = timezone.now()
    before, after = deadline - HOUR, deadline + HOUR
    endings = {
        "done": (State.SUCCEEDED, before),
        "late": (State.SUCCEEDED, after),
        "limit": (State.TIMED_OUT, before),
        "failed": (State.FAILED, before),
        "failed late": (State.FAILED, after),
        "runs": (State.RUNNING, None),
        "deleted": None,
    }
    ids = {name: uuid4() for name in endings}
    open_ones = [OpenDeadline(pk, ids[name], deadline) for pk, name in enumerate(endings)]
    jobs = {ids[name]: Ending(found[0], None, found[1]) for name, found in endings.items() if found}
    names = list(endings)

    known, never = outcomes_of_deadlines(open_ones, jobs, after)
    assert {names[pk]: found for pk, found in known.items()} == {
        "done": KnownOutcome(met=True, known_at=before),
        "late": KnownOutcome(met=False, known_at=deadline),
        "limit": KnownOutcome(met=False, known_at=before),
        "failed late": KnownOutcome(met=False, known_at=deadline),
        "runs": KnownOutcome(met=False, known_at=deadline),
    }
    assert [names[pk] for pk in never] == ["failed", "deleted"]
    known, _ = outcomes_of_deadlines(open_ones, jobs, before)
    assert "runs" not in {names[pk] for pk in known}, "it may still be in time"


def test_runs_of_forecasts_complete_what_has_come(cluster: Lab) -> None:
    met, missed, failed = (submitted(cluster, minutes=10, **due_in(cluster, HOUR)) for _ in range(3))
    forecast_now(cluster)
    assert DeadlineForecast.objects.filter(met=None).count() == 3
    Job.objects.filter(pk=met.pk).update(state=State.SUCCEEDED, finished_at=cluster.now)
    Job.objects.filter(pk=failed.pk).update(state=State.FAILED, finished_at=cluster.now)
    cluster.ahead += 2 * HOUR
    forecast_now(cluster, number=2)
    assert {one.job: one.met for one in DeadlineForecast.objects.all()} == {met.pk: True, missed.pk: False}


def test_outcomes_are_read_and_written_by_as_many_queries_whatever_their_number(cluster: Lab) -> None:
    def queries(jobs: int) -> int:
        for _ in range(jobs):
            submitted(cluster, minutes=1, **due_in(cluster, HOUR))
        now = cluster.now
        for number, job in enumerate(Job.objects.filter(finished_at=None)):
            DeadlineForecast.objects.create(
                job=job.pk, team=job.team, deadline=now, made_at=now - number * timedelta(seconds=1), in_time=0.5
            )
        with CaptureQueriesContext(connection) as found:
            close_deadlines(now + HOUR)
        assert not DeadlineForecast.objects.filter(met=None).exists()
        return len({query["sql"].partition(" WHERE ")[0] for query in found if "SAVEPOINT" not in query["sql"]})

    assert queries(1) == queries(7)


def test_the_database_refuses_an_outcome_without_its_time_and_more_than_certainty(lab: Lab) -> None:
    for columns in ({"met": True}, {"in_time": 1.5}):
        one = kept(lab, 0, in_time=0.5, met=None)
        with pytest.raises(IntegrityError), transaction.atomic():
            DeadlineForecast.objects.filter(pk=one.pk).update(**columns)
        one.delete()


def test_kept_probabilities_expire(lab: Lab) -> None:
    long_ago = lab.now - timedelta(days=400)
    for number, met in enumerate((True, True, None, None)):
        kept(lab, number, in_time=0.5, met=met)
    old_known, old_open = (DeadlineForecast.objects.filter(met=met).earliest("pk").pk for met in (True, None))
    DeadlineForecast.objects.filter(pk=old_known).update(known_at=long_ago)
    DeadlineForecast.objects.filter(pk=old_open).update(made_at=long_ago)
    delete_expired(lab.now)
    assert sorted(one.met is None for one in DeadlineForecast.objects.all()) == [False, True]


# -- judged --------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("plain_static")
def test_how_good_probabilities_were_is_told_once_there_are_enough_outcomes(lab: Lab, client: Client) -> None:
    def judged(user: User) -> dict[str, Any]:
        client.force_login(user)
        found: dict[str, Any] = client.get("/api/v1/forecasts/accuracy/deadlines").json()
        return found

    user = lab.user()
    assert judged(user) == {
        "outcomes": 0,
        "too_few": True,
        "met": None,
        "brier": None,
        "brier_of_mean": None,
        "bins": [],
    }
    assert "Deadlines" not in client.get("/forecasts").content.decode()
    for number in range(FEWEST - 1):
        kept(lab, number, in_time=0.8, met=number % 4 != 0)
    page = client.get("/forecasts").content.decode()
    assert f"too few outcomes ({FEWEST - 1} of {FEWEST})" in page
    assert f"Too few outcomes for a Brier score ({FEWEST - 1} of {FEWEST})." in page
    kept(lab, FEWEST, in_time=0.8, met=True)
    kept(lab, FEWEST + 1, in_time=0.2, met=False)
    kept(lab, FEWEST + 2, in_time=0.2, met=None)
    found, met = judged(user), FEWEST - 8
    assert (found["outcomes"], found["too_few"], len(found["bins"])) == (FEWEST + 1, False, 2)
    assert found["brier"] == pytest.approx((met * 0.2**2 + 8 * 0.8**2 + 0.2**2) / (FEWEST + 1))
    low, high = found["bins"]
    assert (low["outcomes"], low["too_few"]) == (1, True)
    assert (high["least"], high["most"], high["stated"]) == (0.7, 0.9, pytest.approx(0.8))
    assert high["met"] == pytest.approx(met / FEWEST)
    page = " ".join(client.get("/forecasts").content.decode().split())
    assert f"Brier score {found['brier']:.3f}:" in page
    assert "73 %" in page
