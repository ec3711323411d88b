"""A batch that is tuned: what jobs say of batch and noise is learnt, and attempts are told the batch for their GPUs."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from estimation.throughput_model import ThroughputModel
from insight_app.explain.decisions import explain_job
from insight_app.explain.dry_run import dry_run
from jobs_app.measurement.fading_means import MOST_ROWS
from jobs_app.measurement.progress_reports import ProgressDelta, note_progress
from jobs_app.models import Attempt, GradientNoise, Job, Throughput
from tests.scheduler.decided_round import Decided
from tests.service_lab import UNTIL_LET_GO, Lab

BATCH = {"initial": 128, "max": 2048, "max_per_gpu": 256}
STEP = ThroughputModel(0.02, 0.002, 0.05, 0.003, 0.03, 0.002, 1.6)
PRINT_AND_WAIT = f"env; {UNTIL_LET_GO}"


def report(attempt: Attempt, *, reports: int = 10, **said: Any) -> None:
    """Steps of a tenth of a second each."""
    start = timezone.now()
    span = timedelta(seconds=0.1 * reports)
    advance = ProgressDelta(attempt.pk, reports, 0, start, reports, start + span, None, **said)
    note_progress([advance])


def known_speeds(lab: Lab, job: Job, *gpus: int) -> None:
    """Measured with the initial batch on so many GPUs."""
    kind = Attempt.objects.filter(job=job).select_related("gpu_type")[0].gpu_type
    for count in gpus:
        rate = float(1 / STEP.step_seconds(1, count, 128 / count))
        Throughput.objects.create(
            team=job.team,
            workload=job.workload,
            gpu_type=kind,
            gpus=count,
            nodes=1,
            batch_size=128,
            steps_per_second=rate,
            reports=100,
        )


@pytest.fixture
def first(lab: Lab) -> Job:
    """A job on one GPU of four whose batch is tuned, and of which nothing is known yet."""
    lab.node("n1", gpus=4)
    job = lab.submit(PRINT_AND_WAIT, batch_size=BATCH)
    lab.running(job)
    return job


def second(lab: Lab, first: Job, **spec: Any) -> Job:
    """Another of the workload, on all GPUs."""
    lab.let_go(first)
    lab.until_state(first, Job.State.SUCCEEDED)
    job = lab.submit(PRINT_AND_WAIT, **({"gpus": 4, "batch_size": BATCH} | spec))
    lab.running(job)
    lab.until(lambda: "MOTLEY_JOB_ID" in lab.environment(job))
    return job


# -- what is told ------------------------------------------------------------------------------------------------


def test_a_job_that_did_not_ask_for_it_is_told_no_batch(lab: Lab) -> None:
    lab.node("n1")
    job = lab.until_state(lab.submit("env"), Job.State.SUCCEEDED)
    assert not {"MOTLEY_BATCH_SIZE", "MOTLEY_MICRO_BATCHES"} & lab.environment(job).keys()


def test_while_nothing_is_known_the_batch_is_the_initial_one(lab: Lab, first: Job) -> None:
    lab.until(lambda: "MOTLEY_JOB_ID" in lab.environment(first))
    assert lab.environment(first)["MOTLEY_BATCH_SIZE"] == "128"
    attempt = lab.attempts(first)[0]
    assert (attempt.batch_size, attempt.micro_batches, attempt.step_worth) == (128, 1, 1)


def test_a_share_that_does_not_fit_at_once_is_done_in_parts(lab: Lab) -> None:
    lab.node("n1")
    job = lab.until_state(lab.submit("env", batch_size=BATCH | {"max_per_gpu": 50}), Job.State.SUCCEEDED)
    found = lab.environment(job)
    assert (found["MOTLEY_BATCH_SIZE"], found["MOTLEY_MICRO_BATCHES"]) == ("129", "3")


def test_a_noisy_gradient_and_known_speeds_give_a_larger_batch(lab: Lab, first: Job) -> None:
    report(lab.attempts(first)[0], batch_size=128, grad_sqr=1.0, grad_var=50.0)
    Throughput.objects.all().delete()
    known_speeds(lab, first, 1, 2, 4)
    job = second(lab, first)
    attempt = lab.attempts(job)[-1]
    told = lab.environment(job)
    assert int(told["MOTLEY_BATCH_SIZE"]) == attempt.batch_size > 128
    assert attempt.step_worth > 1
    choices = json.loads(told["MOTLEY_BATCH_CHOICES"])
    assert [attempt.batch_size, attempt.micro_batches] in [choice[:2] for choice in choices]
    assert (choices[0][0], choices[-1][0]) == (128, 2048)


def test_the_rate_is_in_steps_of_the_initial_batch_and_emulated_gpus_pace_the_jobs_own(lab: Lab, first: Job) -> None:
    report(lab.attempts(first)[0], batch_size=128, grad_sqr=1.0, grad_var=50.0)
    Throughput.objects.all().delete()
    known_speeds(lab, first, 1, 2, 4)
    job = second(lab, first)
    attempt = lab.attempts(job)[-1]
    own = float(lab.environment(job)["MOTLEY_EMULATED_RATE"])
    assert own == pytest.approx(attempt.rate / attempt.step_worth, rel=1e-4)
    assert own == pytest.approx(float(1 / STEP.step_seconds(1, 4, attempt.batch_size / 4)), rel=0.2)


def test_the_plan_counts_on_the_same_rate_as_the_round(lab: Lab, first: Job) -> None:
    report(lab.attempts(first)[0], batch_size=128, grad_sqr=1.0, grad_var=50.0)
    spec = {"name": "job", "command": PRINT_AND_WAIT, "gpus": 2, "batch_size": BATCH, "workload": first.workload}
    planned = dry_run(spec, owner=first.owner)["options"][0]
    job = second(lab, first, gpus=2)
    assert planned["rate"] == pytest.approx(lab.attempts(job)[-1].told_rate)
    assert explain_job(job, timezone.now())["rates_used"][0]["rate"] == pytest.approx(planned["rate"])


def test_a_jobs_own_noise_counts_before_that_of_its_workload(lab: Lab, first: Job) -> None:
    known_speeds(lab, first, 1, 2, 4)
    report(lab.attempts(first)[0], batch_size=128, grad_sqr=1.0, grad_var=50.0)
    first.refresh_from_db()
    assert first.noise_scale == 50 * 128
    waiting = lab.submit(PRINT_AND_WAIT, gpus=4, batch_size=BATCH, workload=first.workload)
    Job.objects.filter(pk=waiting.pk).update(noise_scale=0.01)  # as it said in an attempt before
    lab.let_go(first)
    lab.running(waiting)
    assert lab.attempts(waiting)[-1].batch_size == 128


def test_what_is_left_of_a_job_counts_in_steps_of_the_initial_batch_as_its_rates_do(lab: Lab, first: Job) -> None:
    """A step of 512 samples is worth (50 + 1) / (50 / 4 + 1) of 128; the job expects to be done at step 1,010."""
    Job.objects.filter(pk=first.pk).update(total_steps=1_000_000)
    of_noise = {"batch_size": 512, "grad_sqr": 1.0, "grad_var": 50.0 / 4}
    report(lab.attempts(first)[0], reports=10, total_steps=1010, **of_noise)
    problem = Decided.now(lab, "test", number=10_000).snapshot.problem
    assert problem.remaining_steps[0] == pytest.approx(1000 * 51 / 13.5)
    assert problem.total_steps[0] == pytest.approx(1010 * 51 / 13.5)


# -- what is learnt ----------------------------------------------------------------------------------------------


def test_rates_are_kept_by_the_batch_that_was_reported(lab: Lab, first: Job) -> None:
    report(lab.attempts(first)[0], batch_size=64)
    found = Throughput.objects.get()
    assert (found.batch_size, found.steps_per_second) == (64, pytest.approx(10))


def test_a_job_that_reports_no_batch_has_the_one_it_was_told(lab: Lab, first: Job) -> None:
    report(lab.attempts(first)[0])
    assert Throughput.objects.get().batch_size == 128


def test_a_job_that_was_told_none_and_reports_none_has_none(lab: Lab) -> None:
    lab.node("n1")
    job = lab.submit(UNTIL_LET_GO)
    lab.running(job)
    report(lab.attempts(job)[0])
    assert Throughput.objects.get().batch_size == 0


def test_noise_is_kept_per_sample(lab: Lab, first: Job) -> None:
    report(lab.attempts(first)[0], batch_size=64, grad_sqr=0.5, grad_var=3.0)
    found = GradientNoise.objects.get()
    assert (found.team, found.workload) == (first.team, first.workload)
    assert (found.grad_sqr, found.sample_var) == (0.5, 192.0)


@pytest.mark.parametrize(
    "said", [{"grad_sqr": 1.0}, {"grad_sqr": -1.0, "grad_var": 2.0}, {"grad_sqr": 0.0, "grad_var": 0.0}]
)
def test_noise_that_makes_no_sense_is_not_learnt(lab: Lab, first: Job, said: dict[str, float]) -> None:
    report(lab.attempts(first)[0], batch_size=64, **said)
    assert not GradientNoise.objects.exists()


def test_later_reports_of_noise_are_merged_with_earlier_ones(lab: Lab, first: Job) -> None:
    report(lab.attempts(first)[0], reports=10, batch_size=1, grad_sqr=1.0, grad_var=10.0)
    report(lab.attempts(first)[0], reports=20, batch_size=1, grad_sqr=3.0, grad_var=10.0)
    found = GradientNoise.objects.get()
    assert (found.grad_sqr, found.reports) == (2.0, 2)


def test_a_program_that_says_another_batch_again_and_again_fills_no_table(lab: Lab, first: Job) -> None:
    for n in range(MOST_ROWS + 5):
        for reports in (20 * n + 10, 20 * n + 20):  # what lies between two batches tells of neither
            report(lab.attempts(first)[0], reports=reports, batch_size=100 + n)
    assert Throughput.objects.count() == MOST_ROWS


def test_rates_before_and_after_a_change_of_batch_are_not_mixed(lab: Lab, first: Job) -> None:
    """Else the spread between runs, by which rounds judge how certain a rate is, would go wrong."""
    attempt, start = lab.attempts(first)[0], timezone.now()
    told = [(10, 128, 1.0), (20, 128, 2.0), (25, 512, 3.0), (27, 512, 4.0), (29, 512, 5.0)]  # 10, then 2 steps/s
    for step, batch, seconds in told:
        note_progress(
            [ProgressDelta(attempt.pk, step, 0, start, step, start + timedelta(seconds=seconds), None, batch)]
        )
    rates = {row.batch_size: row for row in Throughput.objects.all()}
    assert {batch: row.steps_per_second for batch, row in rates.items()} == pytest.approx({128: 10.0, 512: 2.0})
    assert (rates[128].runs, rates[512].runs) == (1, 0)
    attempt.refresh_from_db()
    assert (attempt.reported_batch, attempt.batch_changes) == (512, 1)


def test_a_batch_beyond_all_bounds_is_taken_for_the_one_that_was_told(lab: Lab, first: Job) -> None:
    report(lab.attempts(first)[0], batch_size=2**62)
    assert Throughput.objects.get().batch_size == 128


# -- the whole way round -----------------------------------------------------------------------------------------


REPORTING = """
import os, sys, time
from motley_client.training import batch_size, progress
for step in range(int(sys.argv[1])):
    time.sleep(1 / float(os.environ["MOTLEY_EMULATED_RATE"]))
    progress(step, batch_size=batch_size(1), grad_sqr=1.0, grad_var=30.0)
"""


def test_what_running_jobs_report_gives_the_next_one_a_larger_batch(lab: Lab, job_python: Path) -> None:
    lab.node("n1", gpus=4)
    spec: dict[str, Any] = {"batch_size": BATCH, "rates": {"a100": {1: 20, 2: 27}}}
    for gpus in (1, 2):
        lab.until_state(lab.submit(["python", "-c", REPORTING, "40"], gpus=gpus, **spec), Job.State.SUCCEEDED)
    third = lab.until_state(lab.submit(["python", "-c", REPORTING, "1"], gpus=4, **spec), Job.State.SUCCEEDED)
    attempt = lab.attempts(third)[0]
    assert Throughput.objects.get(gpus=1).batch_size == 128
    assert attempt.batch_size > 128
    assert attempt.step_worth > 1
