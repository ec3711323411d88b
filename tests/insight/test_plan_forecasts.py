"""When a job that is not submitted yet would start and end: it joins the queue in futures that end with it."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from math import inf
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from pytest_django import Settings

from cluster_app import feasibility_cache
from cluster_app.models import Node
from forecast.future import OutOfTime
from insight_app.errors import TooManySolves
from insight_app.explain import plan_forecast
from insight_app.explain.plan_forecast import PlannedForecast, forecast_plan
from insight_app.explain.solve_slots import solve_slots
from insight_app.models import JobForecast
from jobs_app.models import Job
from jobs_app.submission.submit import admitted
from scheduler_app.models import PolicySetting
from tests.insight.forecast_cluster import RATE, forecast_now, running, submitted
from tests.service_lab import Lab

MINUTE = timedelta(minutes=1)


@pytest.fixture
def cluster(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> Lab:
    """One GPU that is held for ten minutes more, in the order of submission; plans have time on a busy machine."""
    monkeypatch.setattr(plan_forecast, "BUDGET_S", 30.0)
    lab.node("n1", "a100", gpus=1)
    lab.policy("fifo", round_s=60)
    running(lab, submitted(lab, minutes=10))
    return lab


def spec(minutes: float = 20, **also: object) -> dict[str, Any]:
    asked = {"name": "net", "team": "vision", "command": "true", "gpus": 1, "rates": {"a100": RATE}}
    return asked | {"total_steps": int(minutes * 60 * RATE)} | also


def planned(lab: Lab, **also: object) -> PlannedForecast:
    user = lab.user()
    return forecast_plan(admitted(spec(**also), user, administrator=False), user, timezone.now())


def why_none(lab: Lab, **also: object) -> str:
    found = planned(lab, **also)
    assert found.forecast is None
    return found.why_none


def test_it_starts_when_those_before_it_have_ended(cluster: Lab) -> None:
    submitted(cluster, minutes=30)
    now, found = timezone.now(), planned(cluster).forecast
    assert found is not None
    assert found.start is not None
    assert found.start.low is not None
    assert found.start.high is not None
    assert found.start.low <= now + 40 * MINUTE <= found.start.high
    assert found.finish.low is not None
    assert found.finish.high is not None
    assert found.finish.low <= now + 60 * MINUTE <= found.finish.high
    assert (found.place, found.queue, found.gpu_type) == (2, 2, "a100")
    assert Job.objects.count() == 2, "nothing is written"
    assert not JobForecast.objects.exists()


def test_a_plan_that_waits_for_a_job_starts_after_it(cluster: Lab) -> None:
    cluster.node("n2", "a100", gpus=1)
    now, first = timezone.now(), Job.objects.get()
    found = planned(cluster, after=[{"job": str(first.pk)}]).forecast
    assert found is not None
    assert found.start is not None
    assert found.start.median == pytest.approx(now + 10 * MINUTE, abs=3 * MINUTE)


def test_the_plan_is_forecast_as_the_job_is_once_it_is_submitted(cluster: Lab) -> None:
    submitted(cluster, minutes=30)
    before = planned(cluster).forecast
    job = submitted(cluster, minutes=20)
    forecast_now(cluster)
    after = JobForecast.objects.get(job=job.pk)
    assert before is not None
    assert before.start is not None
    assert before.start.median == pytest.approx(after.start_median, abs=10 * MINUTE)
    assert before.finish.median == pytest.approx(after.finish_median, abs=10 * MINUTE)


def test_a_plan_without_a_forecast_says_why(cluster: Lab, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    held = submitted(cluster, minutes=1)
    Job.objects.filter(pk=held.pk).update(held=True)
    assert why_none(cluster, after=[{"job": str(held.pk)}]) == "It waits for a job without a forecast."
    with monkeypatch.context() as few:
        few.setattr(plan_forecast, "MOST_JOBS", 1)
        assert why_none(cluster).startswith("More than 1 jobs are unfinished")
    settings.MOTLEY_FORECASTS = False
    assert why_none(cluster) == "Forecasts are switched off on this site."


def test_a_job_for_which_no_node_is_in_service_is_not_forecast(cluster: Lab) -> None:
    cluster.node("n2", "t4", gpus=1)
    asked = admitted(spec(gpu_types=["t4"]), cluster.user(), administrator=False)
    Node.objects.filter(name="n2").update(state=Node.State.CORDONED, reason="fan")
    found = forecast_plan(asked, cluster.user(), timezone.now())
    assert found == PlannedForecast(None, "No node in service can run the job.")


def test_a_queue_that_takes_too_long_is_not_forecast_from_a_few_futures(
    cluster: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    def out_of_time(*args: Any, **kwargs: Any) -> Any:
        raise OutOfTime("no future was played")

    monkeypatch.setattr(plan_forecast, "DRAWS", 4)
    assert why_none(cluster).startswith("The queue is too long")
    monkeypatch.setattr(plan_forecast, "forecast", out_of_time)
    assert why_none(cluster).startswith("The queue is too long")


def test_a_policy_that_fails_leaves_the_plan_without_a_forecast(cluster: Lab) -> None:
    PolicySetting.objects.update(parameters={"gone": 1})
    assert "the log of the service" in why_none(cluster)


def test_one_plan_at_a_time_is_forecast_for_each_person(cluster: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def full(user: User) -> Iterator[None]:
        raise TooManySolves
        yield

    monkeypatch.setattr(solve_slots, "slot_for", full)
    assert "try again" in why_none(cluster)


def test_rest_forecasts_a_plan_where_it_is_asked_for(cluster: Lab, client: Client) -> None:
    client.force_login(cluster.user())

    def plan(query: str) -> dict[str, Any]:
        answer = client.post(f"/api/v1/jobs?dry_run=true{query}", spec(), content_type="application/json")
        return dict(answer.json())

    assert plan("")["forecast"] is None
    told = plan("&forecast=true")["forecast"]
    assert told["why_none"] == ""
    start, finish = told["forecast"]["start"], told["forecast"]["finish"]
    assert start["low"] <= start["median"] <= start["high"] < finish["high"]


@pytest.mark.usefixtures("plain_static")
def test_the_page_of_a_new_job_shows_it(cluster: Lab, client: Client) -> None:
    client.force_login(cluster.user())

    def shown(yaml: str) -> str:
        answer = client.post("/jobs/new/forecast", {"mode": "yaml", "yaml": yaml})
        return " ".join(answer.json()["forecast"].split())

    written = "name: net\nteam: vision\ncommand: 'true'\ngpus: 1\ntotal_steps: 12000\nrates: {a100: 10}\n"
    assert "<b>Forecast:</b> starts <time" in shown(written)
    assert "most likely on A100; 1st of 1 that wait." in shown(written)
    held = submitted(cluster, minutes=1)
    Job.objects.filter(pk=held.pk).update(held=True)
    assert "waits for a job without a forecast" in shown(f"{written}after: [{{job: {held.pk}}}]\n")
    assert shown(written.replace("gpus: 1", "gpus: -1")) == ""


def test_a_plan_is_forecast_with_as_many_queries_however_many_jobs_wait(
    cluster: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feasibility_cache, "GOOD_FOR_S", inf)  # on a busy machine it ends between two plans
    planned(cluster)
    counts = []
    for _ in range(2):
        submitted(cluster, minutes=1)
        with CaptureQueriesContext(connection) as asked:
            assert planned(cluster).forecast
        counts.append(len(asked))
    assert counts[0] == counts[1]
