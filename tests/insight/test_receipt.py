"""Receipts of jobs, and which GPUs they should have requested, by what was measured."""

from datetime import timedelta
from decimal import Decimal

import pytest
from django.test import Client as Browser
from pytest_django import Settings

from cluster_app.models import GpuType
from insight_app.explain.cost_and_time import CostUnit
from insight_app.explain.gpu_advice import (
    BATCH_UNKNOWN,
    NO_STEPS,
    NOT_MEASURED,
    ONLY_HERE,
    GpuAdvice,
    MeasuredGpus,
    advice_of,
    read_gpu_advice,
)
from jobs_app.models import Job, Throughput
from tests.rest_callers import caller
from tests.service_lab import Lab

HOUR = timedelta(hours=1)


@pytest.fixture
def job(lab: Lab) -> Job:
    """It ran an hour on 4 A100 at 10 steps/s, after half an hour on 2 V100; 36,000 steps."""
    for name in ("a100", "v100", "t4"):
        lab.node(f"n-{name}", name, gpus=4)
    GpuType.objects.filter(name="a100").update(price_per_hour=Decimal(2), power_w=400)
    GpuType.objects.filter(name="v100").update(price_per_hour=Decimal("0.5"), power_w=300)
    GpuType.objects.filter(name="t4").update(price_per_hour=0, power_w=0)
    job, now = lab.submit(name="train", total_steps=36_000), lab.now
    ended = {"state": "ended", "engine": "local", "nodes": ["n"]}
    v100, a100 = GpuType.objects.get(name="v100"), GpuType.objects.get(name="a100")
    early = {"started_at": now - 2 * HOUR, "ended_at": now - 1.5 * HOUR, "outcome": "preempted"}
    lab.attempt(job, gpu_type=v100, gpu_count=2, gpu_energy_j=7.2e6, **ended, **early)
    steps = {"reports": 50, "first_step": 0, "first_step_at": now - HOUR, "step": 36_000, "step_at": now}
    late = {"started_at": now - HOUR, "ended_at": now, "outcome": "succeeded"}
    lab.attempt(job, gpu_type=a100, gpu_count=4, **ended, **steps, **late)
    Job.objects.filter(pk=job.pk).update(state="succeeded", finished_at=now, step=36_000, work_lost_gpu_s=1800)
    job.refresh_from_db()
    for kind, gpus, rate, runs in ((a100, 4, 9.0, 5), (v100, 4, 6.0, 3), (v100, 8, 12.0, 2)):
        columns = {"steps_per_second": rate, "runs": runs, "reports": 50}
        Throughput.objects.create(team=job.team, workload=job.workload, gpu_type=kind, gpus=gpus, nodes=1, **columns)
    return job


def test_a_receipt_has_hours_money_energy_and_carbon(
    lab: Lab, job: Job, settings: Settings, plain_static: None
) -> None:
    settings.MOTLEY_CO2_G_PER_KWH, settings.MOTLEY_CURRENCY = 300.0, "EUR"
    found = caller(lab.user()).get(f"/api/v1/jobs/{job.pk}/receipt").json()
    assert [(line["gpu_type"], line["attempts"], line["gpu_hours"], line["cost"]) for line in found["lines"]] == [
        ("a100", 1, pytest.approx(4), pytest.approx(8)),
        ("v100", 1, pytest.approx(1), pytest.approx(0.5)),
    ]
    sums = (found["complete"], found["gpu_hours"], found["cost"], found["lost_gpu_hours"], found["currency"])
    assert sums == (True, pytest.approx(5), pytest.approx(8.5), 0.5, "EUR")
    assert found["energy_kwh"] == pytest.approx(2 + 4 * 0.4)
    assert found["co2_g"] == pytest.approx(300 * 3.6)
    browser = Browser()
    browser.force_login(lab.user())
    page = browser.get(f"/jobs/{job.pk}?tab=cost").content.decode()
    assert ("8.50 EUR" in page, "1.08 kg" in page, "measured in 3 runs" in page) == (True, True, True)
    settings.MOTLEY_CO2_G_PER_KWH = 0.0
    assert caller(lab.user()).get(f"/api/v1/jobs/{job.pk}/receipt").json()["co2_g"] is None


def test_a_job_that_has_not_run_has_no_receipt_yet(lab: Lab, plain_static: None) -> None:
    lab.node("n1", gpus=1)
    job = lab.submit()
    found = caller(lab.user()).get(f"/api/v1/jobs/{job.pk}/receipt").json()
    assert (found["complete"], found["lines"], found["cost"]) == (False, [], None)
    assert found["advice"]["sentence"] == NOT_MEASURED


def test_the_advice_is_by_measured_rates_and_prices(lab: Lab, job: Job) -> None:
    advice = caller(lab.user()).get(f"/api/v1/jobs/{job.pk}/receipt").json()["advice"]
    assert (advice["unit"], advice["own_run_s"], advice["own_cost"]) == ("price", pytest.approx(3600), pytest.approx(8))
    assert [(one["gpus"], one["gpu_type"], one["pareto_optimal"]) for one in advice["others"]] == [
        (8, "v100", True),
        (4, "v100", False),
    ]
    assert (
        advice["sentence"] == "Request 8 V100: 10 min sooner, 58 % cheaper (measured in 2 runs): it is better in both."
    )


def test_rates_of_other_batches_are_not_compared(lab: Lab, job: Job) -> None:
    def advice() -> GpuAdvice:
        job.refresh_from_db()
        return read_gpu_advice(job, job.attempts.all())

    there, elsewhere = (Throughput.objects.filter(gpu_type__name=name) for name in ("a100", "v100"))
    there.update(batch_size=64)  # as its progress reports say
    assert advice().why_none == ONLY_HERE
    elsewhere.filter(gpus=8).update(batch_size=64)
    assert [one.on.name for one in advice().others] == ["8 V100"]
    Job.objects.filter(pk=job.pk).update(continues_step=27_000)  # it has made 9,000 steps itself
    assert advice().own_run_s == pytest.approx(900)
    Throughput.objects.create(
        team=job.team, workload=job.workload, gpu_type=there.get().gpu_type, gpus=4, nodes=1, batch_size=512,
        steps_per_second=2.0, runs=9, reports=50,
    )  # fmt: skip
    assert advice().why_none == BATCH_UNKNOWN
    job.attempts.filter(number=2).update(batch_size=64)  # as Motley set it
    job.attempts.filter(number=1).update(batch_size=512, reports=50, first_step_at=job.created_at, step=9)
    assert [one.on.name for one in advice().others] == ["8 V100"]
    job.attempts.update(reports=2)
    assert advice().why_none == NOT_MEASURED


A100 = MeasuredGpus("a100", 4, 1, 10.0, 1, 2.0)
V100 = MeasuredGpus("v100", 8, 1, 8.0, 3, 0.5)
LATER = "8 V100: 15 min later, 38 % cheaper (measured in 3 runs)"
SOONER = "4 A100: 15 min sooner, 60 % dearer (measured in 1 run)"


@pytest.mark.parametrize(
    ("steps", "own", "measured", "sentence"),
    [
        (36_000, A100, [V100], f"Where it may take longer, request {LATER}."),
        (36_000, V100, [A100], f"Where it has to be sooner, request {SOONER}."),
        (36_000, A100, [V100._replace(rate=1.0)],
         "4 A100 were a good choice: of the GPUs on which it was measured none is cheaper or faster."),
        (36_000, A100, [A100], ONLY_HERE),
        (36_000, None, [V100], NOT_MEASURED),
        (36_000, A100, None, BATCH_UNKNOWN),
        (0, A100, [V100], NO_STEPS),
    ],
)  # fmt: skip
def test_the_advice_in_words(
    steps: int, own: MeasuredGpus | None, measured: list[MeasuredGpus] | None, sentence: str
) -> None:
    assert advice_of(steps, own, measured).sentence == sentence


def test_without_a_price_costs_are_gpu_hours() -> None:
    advice = advice_of(36_000, A100, [V100._replace(price_per_hour=0.0)])
    assert (advice.unit, advice.own_cost, advice.others[0].cost) == (CostUnit.GPU_HOURS, 4.0, 10.0)
