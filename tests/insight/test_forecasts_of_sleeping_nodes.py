"""Forecasts on nodes that sleep or are being woken: their GPUs are free after the boot time."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from pytest_django import Settings

from cluster_app.models import Engine, GpuType, Node, NodePower
from cluster_app.services import put_to_sleep, wake
from insight_app.explain import plan_forecast
from insight_app.explain.plan_forecast import forecast_plan
from insight_app.models import JobForecast
from insight_app.start_forecasts.nodes import LATE, read_boots
from jobs_app.models import Job
from jobs_app.submission.submit import admitted
from tests.insight.forecast_cluster import RATE, forecast_now, submitted
from tests.service_lab import Lab

BOOT = timedelta(minutes=7)
SLACK = timedelta(minutes=1)


@pytest.fixture
def asleep(lab: Lab, settings: Settings) -> Iterator[Lab]:
    """Two nodes of one GPU that sleep, and can be woken by the site's commands."""
    settings.MOTLEY_NODE_SLEEP, settings.MOTLEY_NODE_WAKE = "true {node}", "true {node}"
    for name in ("n1", "n2"):
        lab.node(name, "a100", gpus=1)
    GpuType.objects.update(boot_s=BOOT.total_seconds())
    lab.policy("fifo", round_s=60)
    for node in Node.objects.all():
        assert put_to_sleep(node, reason="test", now=lab.now)
    with lab.clock_stopped():
        yield lab


def forecast_of(job: Job) -> JobForecast:
    return JobForecast.objects.get(pk=job.pk)


def boot_of(name: str, now: datetime) -> float | None:
    return read_boots(now).get(Node.objects.get(name=name).pk)


def test_a_job_on_a_cluster_that_sleeps_starts_after_the_boot_time(asleep: Lab) -> None:
    first, second, third = (submitted(asleep, minutes=30) for _ in range(3))
    assert forecast_now(asleep).message == ""
    for job in (first, second):
        assert forecast_of(job).start_low == pytest.approx(asleep.now + BOOT, abs=SLACK)
        assert forecast_of(job).start_high == pytest.approx(asleep.now + BOOT, abs=SLACK)
    assert forecast_of(third).start_median == pytest.approx(asleep.now + BOOT + timedelta(minutes=30), abs=6 * SLACK)


def test_a_plan_on_a_cluster_that_sleeps_starts_after_the_boot_time(
    asleep: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan_forecast, "BUDGET_S", 30.0)  # on a busy machine, too
    spec: dict[str, Any] = {"name": "net", "team": "vision", "command": "true", "gpus": 1, "rates": {"a100": RATE}}
    user = asleep.user()
    asked = admitted(spec | {"total_steps": int(600 * RATE)}, user, administrator=False)
    found, why_none, *_ = forecast_plan(asked, user, now := timezone.now())
    assert found is not None, why_none
    assert found.start is not None
    assert found.start.median == pytest.approx(now + BOOT, abs=SLACK)


def test_a_node_that_is_being_woken_needs_the_rest_of_its_boot_time(asleep: Lab) -> None:
    assert wake(Node.objects.get(name="n1"), reason="test", now=asleep.now)
    asleep.ahead += timedelta(minutes=5)
    job = submitted(asleep, minutes=30)
    forecast_now(asleep)
    assert forecast_of(job).start_median == pytest.approx(asleep.now + timedelta(minutes=2), abs=SLACK)
    asleep.ahead += timedelta(minutes=5)
    assert boot_of("n1", asleep.now) == pytest.approx(LATE * BOOT.total_seconds()), "it should be awake by now"
    NodePower.objects.filter(node__name="n1").update(done_at=asleep.now)
    assert boot_of("n1", asleep.now) == BOOT.total_seconds(), "its command has only just ended"


def test_a_node_that_nothing_can_wake_does_not_come_back(asleep: Lab, settings: Settings) -> None:
    settings.MOTLEY_NODE_WAKE = ""
    job = submitted(asleep, minutes=30)
    forecast_now(asleep)
    assert not JobForecast.objects.filter(pk=job.pk).exists()
    wake(Node.objects.get(name="n1"), reason="by hand", now=asleep.now)
    assert read_boots(asleep.now).keys() == {Node.objects.get(name="n1").pk}
    Engine.objects.update(enabled=False)
    assert read_boots(asleep.now) == {}


def test_boots_of_any_number_of_nodes_are_read_by_one_query(asleep: Lab) -> None:
    with CaptureQueriesContext(connection) as queries:
        assert len(read_boots(asleep.now)) == 2
    assert len(queries) == 1
