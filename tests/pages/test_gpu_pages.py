"""What pages, REST and metrics say of GPUs: of a job's over its run, of a node's now."""

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from django.utils.html import strip_tags

from accounting_app.gpu_watch.minutes import store_readings
from accounting_app.models import GpuMinute
from cluster_app.gpu_faults import cordon_gpu
from cluster_app.models import Gpu
from engines.protocol import GpuReading, Throttle
from jobs_app.models import Attempt, GpuClaim
from operations.metrics import exposition
from tests.rest_callers import caller

HOT = GpuReading(0, 80.0, 4096.0, 250.0, 83.0, 0, Throttle.SW_THERMAL)


@pytest.fixture
def attempt(decided: Any) -> Attempt:
    """A running attempt whose GPUs were read five minutes ago and now."""
    found = Attempt.objects.live().order_by("pk")[0]
    now = timezone.now()
    Attempt.objects.filter(pk=found.pk).update(
        state="running", started_at=now - timedelta(minutes=6), gpu_energy_j=7200.0
    )
    gpus = list(GpuClaim.objects.filter(attempt=found).values_list("gpu", flat=True))
    for at in (now - timedelta(minutes=5), now):
        readings = [replace(HOT, gpu=gpu) for gpu in gpus]
        store_readings(readings, dict.fromkeys(gpus, found.pk), at)
    found.refresh_from_db()
    return found


@pytest.fixture
def read(member: User, web: Callable[[User], Client]) -> Callable[..., str]:
    def text(name: str, *args: Any, **query: str) -> str:
        page = web(member).get(reverse(name, args=args), query).content.decode()
        return re.sub(r"\s+", " ", strip_tags(page))

    return text


def a_gpu(attempt: Attempt) -> Gpu:
    return Gpu.objects.filter(claims__attempt=attempt).select_related("node")[0]


def test_the_page_of_a_job_shows_its_gpus_over_its_run(attempt: Attempt, read: Any) -> None:
    shown = read("job", attempt.job_id, tab="gpus")
    gpu = a_gpu(attempt)
    assert f"{gpu.node.name} {gpu.index} 80 % 4 GiB 250 W 83 °C 0" in shown
    assert "GPUs of emulated nodes have made-up figures. Energy of the job's GPUs so far: 2 Wh." in shown.replace(
        "&#x27;", "'"
    )


def test_a_job_without_readings_says_so(decided: Any, read: Any) -> None:
    job = Attempt.objects.live().order_by("pk")[0].job_id
    assert "There are no readings of its GPUs yet." in read("job", job, tab="gpus")


def test_the_page_of_a_job_says_that_its_gpus_are_idle(attempt: Attempt, read: Any) -> None:
    Attempt.objects.filter(pk=attempt.pk).update(idle_gpus=attempt.gpu_count, idle_since=timezone.now())
    assert re.search(r"Idle: nothing runs on its GPUs? since", read("job", attempt.job_id))


def test_the_page_of_a_node_shows_its_gpus_now_and_why_one_is_out_of_service(attempt: Attempt, read: Any) -> None:
    gpu = a_gpu(attempt)
    cordon_gpu(gpu, reason="bent connector", actor=None)
    shown = read("node", gpu.node.name)
    assert f"{gpu.index} 80 % 4 GiB 250 W 83 °C 0 temperature bent connector." in shown
    assert f"GPU {gpu.index} is out of service: bent connector" in shown


def test_metrics_have_the_names_of_the_dcgm_exporter(attempt: Attempt) -> None:
    gpu, said = a_gpu(attempt), exposition().decode()
    of_dcgm = f'Hostname="{gpu.node.name}",UUID="{gpu.uuid}"'
    model = f'modelName="{gpu.node.gpu_type.name}"'
    labels = f'{{{of_dcgm},emulated="true",gpu="{gpu.index}",job="{attempt.job_id}",{model},node="{gpu.node.name}"}}'
    for name, value in (("GPU_UTIL", 80.0), ("FB_USED", 4096.0), ("POWER_USAGE", 250.0), ("GPU_TEMP", 83.0)):
        assert f"DCGM_FI_DEV_{name}{labels} {value}" in said


def test_metrics_forget_a_gpu_that_is_not_read_any_more(attempt: Attempt) -> None:
    long_ago = timezone.now() - timedelta(minutes=30)
    GpuMinute.objects.filter(minute__lt=long_ago + timedelta(minutes=26)).delete()
    GpuMinute.objects.update(minute=long_ago)
    assert "DCGM_FI_DEV_GPU_UTIL{" not in exposition().decode()


def test_rest_tells_of_the_gpus_of_a_job_and_of_a_node(attempt: Attempt, member: User) -> None:
    rest = caller(member)
    of_job = rest.get(f"/api/v1/jobs/{attempt.job_id}/gpus").json()
    assert (of_job["attempt"], of_job["emulated"], of_job["energy_wh"]) == (attempt.number, True, 2.0)
    assert [gpu["utilization"] for gpu in of_job["gpus"]] == [80.0] * attempt.gpu_count
    assert [point["power_w"] for point in of_job["course"]] == [250.0, 250.0]
    gpu = a_gpu(attempt)
    cordon_gpu(gpu, reason="bent connector", actor=None)
    of_node = rest.get(f"/api/v1/nodes/{gpu.node.name}/gpus").json()
    (ours,) = (one for one in of_node["gpus"] if one["index"] == gpu.index)
    assert (ours["fault"], ours["healthy"], ours["throttled_by"]) == ("bent connector", False, ["temperature"])


@pytest.mark.parametrize("page", ["job", "node"])
def test_every_chart_finds_its_figure(attempt: Attempt, member: User, web: Callable[[User], Client], page: str) -> None:
    place = attempt.job_id if page == "job" else a_gpu(attempt).node.name
    html = web(member).get(reverse(page, args=[place]), {"tab": "gpus"}).content.decode()
    charts = re.findall(r'data-figure="([\w-]+)"', html)
    assert charts == [f"figure-{name}" for name in ("utilization", "memory", "power", "temperature")]
    assert all(f'<script id="{name}" type="application/json">' in html for name in charts)
    assert "plotly-basic.min.js" in html
