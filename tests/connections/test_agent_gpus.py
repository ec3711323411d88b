"""Readings of GPUs that agents send: as those of other GPUs, each once, and of their own machine alone."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from pytest_django import Settings

from accounting_app.models import GpuMinute
from cluster_app.models import Gpu
from connections_app.agents.uploads import readings_of
from engines.protocol import GpuReading, GpuReport, Throttle, WatchedGpu
from scheduler_app.round.reconcile import observe
from scheduler_app.round.watch_gpus import watch_gpus
from tests.played_agent import DESK, JOINING, Played, running
from tests.service_lab import Lab

REAL = replace(DESK, gpus=[GpuReport(0, "GPU-0"), GpuReport(1, "GPU-1")])
BUSY = GpuReading(0, 37.0, 12_288.0, 250.5, 61.0, 0, Throttle.SW_THERMAL)
WATCHED = [WatchedGpu(71, "desk", 0, "GPU-0"), WatchedGpu(72, "desk", 1, "GPU-1")]


@pytest.fixture
def desk(lab: Lab, settings: Settings, tmp_path: Path) -> Played:
    settings.MOTLEY_AGENT_ROOT = tmp_path / "agents"
    return Played(lab, joining=replace(JOINING, node=REAL, emulated=False))


def look(lab: Lab) -> None:
    lab.ahead += timedelta(seconds=10)
    observe(lab.fence, lab.now)
    watch_gpus(lab.fence, lab.now)


def test_what_an_agent_reads_is_stored_for_the_attempt_that_has_the_gpu(desk: Played, lab: Lab) -> None:
    job = lab.submit("sleep 60", gpu_types=["k80"], gpus=2)
    (launch,) = desk.given().launches
    desk.sync(running(launch.attempt, lab), gpus=[BUSY, replace(BUSY, gpu=1, utilization=12.0)])
    look(lab)
    rows = GpuMinute.objects.order_by("gpu__index").values_list("attempt__job", "utilization", "power_w", "throttle")
    assert list(rows) == [(job.pk, 37.0, 250.5, Throttle.SW_THERMAL), (job.pk, 12.0, 250.5, Throttle.SW_THERMAL)]


def test_a_reading_counts_once_until_the_agent_sends_another(desk: Played, lab: Lab) -> None:
    with lab.clock_stopped():
        desk.sync(gpus=[BUSY])
        for _ in range(3):
            look(lab)
            desk.sync()
        assert sum(GpuMinute.objects.values_list("readings", flat=True)) == 1
        desk.sync(gpus=[BUSY])
        look(lab)
        assert sum(GpuMinute.objects.values_list("readings", flat=True)) == 2


def test_an_agent_speaks_for_no_gpu_of_others(desk: Played, lab: Lab) -> None:
    lab.node("n1", gpus=1)
    other = Gpu.objects.get(node__name="n1")
    desk.sync(gpus=[replace(BUSY, gpu=other.pk, utilization=99.0)])
    look(lab)
    assert not GpuMinute.objects.filter(utilization=99.0).exists()


def test_figures_that_cannot_be_are_left_out() -> None:
    absurd = GpuReading(1, float("nan"), -5.0, 1e9, 61.0, -1, Throttle(-1), processes=(4711,), attempt=3)
    (found,) = readings_of([absurd], WATCHED)
    assert found == GpuReading(72, None, None, None, 61.0, None, Throttle(sum(Throttle)))
