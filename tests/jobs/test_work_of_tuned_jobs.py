"""A job whose batch is tuned: what its steps are worth is summed up as it reports them, and told to people."""

from datetime import timedelta
from importlib import import_module
from typing import Any

import pytest
from django.apps import apps

from connections_app.checkpoints.copying import ChosenCheckpoint, begun_with
from estimation.training_work import worth_of_step
from insight_app.explain.gpu_advice import read_gpu_advice
from insight_app.explain.remaining_work import remaining_work
from jobs_app.measurement.progress_reports import ProgressDelta, note_progress
from jobs_app.measurement.training_progress import worth_at
from jobs_app.models import Attempt, Job, Throughput
from jobs_app.serializers import JobAnswer
from jobs_app.submission.admission import Admitted
from tests.service_lab import Lab

BATCH = {"initial": 128, "max": 2048, "max_per_gpu": 256}
WORTH = 51 / 13.5
"""Of a step of 512 samples."""


@pytest.fixture
def job(lab: Lab) -> Job:
    """It declares 1,000 steps of the initial batch."""
    lab.node("n1")
    return lab.submit(batch_size=BATCH, total_steps=1000)


def begun(lab: Lab, job: Job) -> Attempt:
    """Another attempt, any before being over."""
    ended = {"state": Attempt.State.ENDED, "outcome": "preempted", "ended_at": lab.now, "gone_at": lab.now}
    job.attempts.update(**ended)
    return lab.attempt(job, state=Attempt.State.RUNNING, started_at=lab.now, rate=10.0, nodes=["n1"])


def report(attempt: Attempt, step: int, batch: int, *, first_step: int = 0, reports: int = 0, **said: Any) -> None:
    """All lines up to this step, ten steps a second; the noise is that of 50 * 128 samples."""
    began = attempt.claimed_at
    at, noise = began + timedelta(seconds=(step - first_step) / 10), {"grad_sqr": 1.0, "grad_var": 50 * 128 / batch}
    told = {"batch_size": batch, **noise, **said}
    note_progress([ProgressDelta(attempt.pk, reports or step, first_step, began, step, at, None, **told)])


def test_each_step_counts_by_what_it_was_worth_when_it_was_made(lab: Lab, job: Job) -> None:
    attempt = begun(lab, job)
    report(attempt, 100, 128)
    report(attempt, 200, 512)
    job.refresh_from_db()
    assert job.work.done == pytest.approx(100 + 100 * WORTH)
    assert job.work.left == pytest.approx(900 - 100 * WORTH)
    report(attempt, 200, 512)  # read once more
    job.refresh_from_db()
    assert job.work.done == pytest.approx(100 + 100 * WORTH)


def batches_of_other_rates(attempt: Attempt, *reports: tuple[float, int, int]) -> None:
    """Reports after so many seconds, of this step and batch."""
    began, noise = attempt.claimed_at, {"grad_sqr": 1.0, "grad_var": 50.0}
    for seconds, step, batch in reports:
        at = began + timedelta(seconds=seconds)
        note_progress([ProgressDelta(attempt.pk, step, 0, began, step, at, None, batch_size=batch, **noise)])
    attempt.refresh_from_db()


def test_the_time_left_is_by_the_rate_of_the_present_batch(lab: Lab, job: Job) -> None:
    """It made 100 steps of 128 samples in ten seconds, and makes two of 512 in a second since."""
    attempt = begun(lab, job)
    batches_of_other_rates(attempt, (10, 100, 128), (12, 104, 512), (22, 124, 512))
    job.refresh_from_db()
    left = job.work.own_steps_left
    assert attempt.measured_rate == pytest.approx(2)
    found = remaining_work(job, [attempt], lab.now)
    assert left is not None
    assert found is not None
    assert found.seconds == pytest.approx(left / 2)


def test_until_the_second_report_of_a_batch_the_time_left_is_by_the_expected_rate(lab: Lab, job: Job) -> None:
    """That is of steps of the initial batch, as the work is."""
    attempt = begun(lab, job)
    Attempt.objects.update(step_worth=3.0)
    batches_of_other_rates(attempt, (10, 100, 128), (12, 104, 512))
    job.refresh_from_db()
    assert attempt.batch_rate is None
    found = remaining_work(job, [attempt], lab.now)
    assert found is not None
    assert found.seconds == pytest.approx(job.work.left / 10)


def test_a_job_whose_batch_changes_with_each_report_has_the_mean_rate_of_its_batches(lab: Lab, job: Job) -> None:
    attempt = begun(lab, job)
    Attempt.objects.update(rate_source=Attempt.RateSource.ASSUMED)
    batches_of_other_rates(attempt, (10, 100, 64), (20, 180, 48), (30, 280, 64), (40, 360, 48))
    job.refresh_from_db()
    assert attempt.measured_rate == pytest.approx(9)
    found = remaining_work(job, [attempt], lab.now)
    assert found is not None
    assert found.seconds == pytest.approx((job.work.own_steps_left or 0) / 9)


def test_an_attempt_that_changed_its_batch_before_an_upgrade_is_measured_anew(lab: Lab, job: Job) -> None:
    attempt = begun(lab, job)
    batches_of_other_rates(attempt, (10, 100, 128), (12, 104, 512))
    Attempt.objects.update(batch_step=None, batch_step_at=None)
    import_module("jobs_app.migrations.0018_rate_of_the_present_batch").begin_anew(apps, None)
    batches_of_other_rates(attempt, (22, 124, 512))
    assert attempt.measured_rate == pytest.approx(2)


def test_a_job_that_goes_back_behind_the_change_of_its_batch_has_no_negative_rate(lab: Lab, job: Job) -> None:
    attempt = begun(lab, job)
    batches_of_other_rates(attempt, (10, 100, 128), (12, 104, 512))
    began = attempt.claimed_at
    at = began + timedelta(seconds=22)
    note_progress([ProgressDelta(attempt.pk, 110, 0, began, 50, at, None, batch_size=512)])
    attempt.refresh_from_db()
    assert attempt.measured_rate == 0


def test_a_later_attempt_goes_on_from_the_checkpoint_with_the_worth_of_its_steps(lab: Lab, job: Job) -> None:
    first = begun(lab, job)
    report(first, 100, 128)
    report(first, 200, 512, checkpoint_s=1.0, checkpoint_at=lab.now, checkpoint_step=150)
    second = begun(lab, job)
    report(second, 160, 128, first_step=150, reports=10)
    job.refresh_from_db()
    assert job.work.done == pytest.approx(100 + 50 * WORTH + 10)


def test_a_job_that_continues_it_takes_the_worth_at_the_checkpoint_over(lab: Lab, job: Job) -> None:
    attempt = begun(lab, job)
    report(attempt, 100, 128)
    report(attempt, 200, 512, checkpoint_s=1.0, checkpoint_at=lab.now, checkpoint_step=150)
    job.refresh_from_db()
    assert worth_at(job, 150) == pytest.approx(100 + 50 * WORTH)
    assert worth_at(lab.submit(batch_size=BATCH), 150) is None


@pytest.mark.parametrize(("first_step", "done"), [(200, 100 + 100 * WORTH), (100, (100 + 100 * WORTH) / 2)])
def test_without_reported_checkpoints_it_goes_back_in_proportion(
    lab: Lab, job: Job, first_step: int, done: float
) -> None:
    first = begun(lab, job)
    report(first, 100, 128)
    report(first, 200, 512)
    report(begun(lab, job), first_step, 128, first_step=first_step, reports=1)
    job.refresh_from_db()
    assert job.work.done == pytest.approx(done)


def test_the_steps_of_a_job_without_the_sum_are_worth_what_they_are_now(lab: Lab, job: Job) -> None:
    """It ran before the sum was recorded."""
    attempt = begun(lab, job)
    report(attempt, 200, 512)
    Job.objects.update(worth_done=None)
    job.refresh_from_db()
    assert job.work.done == pytest.approx(200 * WORTH)
    report(attempt, 210, 128)
    job.refresh_from_db()
    assert job.work.done == pytest.approx(210)


def test_people_are_told_the_step_at_which_it_will_be_done_and_when(lab: Lab, job: Job) -> None:
    attempt = begun(lab, job)
    report(attempt, 100, 128)
    report(attempt, 150, 512)
    report(attempt, 200, 512)
    job = Job.objects.prefetch_related("attempts__gpu_type").get()
    left = (900 - 100 * WORTH) / WORTH
    assert JobAnswer(job).data["progress"]["total_steps"] == pytest.approx(200 + left, abs=1)
    found = remaining_work(job, list(job.attempts.all()), lab.now)
    assert found is not None
    assert found.seconds == pytest.approx(left / 10)


def test_time_on_other_gpus_is_that_of_the_whole_job_with_its_present_batch(lab: Lab, job: Job) -> None:
    attempt = begun(lab, job)
    report(attempt, 100, 512)
    place = {"gpu_type": attempt.gpu_type, "gpus": 2, "nodes": 1, "batch_size": 512}
    Throughput.objects.create(team=job.team, workload=job.workload, steps_per_second=20, reports=9, **place)
    job.refresh_from_db()
    advice = read_gpu_advice(job, job.attempts.all())
    assert advice.own_run_s == pytest.approx(1000 / WORTH / 10, abs=0.1)
    assert advice.others[0].run_s == pytest.approx(1000 / WORTH / 20, abs=0.1)


def test_other_jobs_count_their_own_steps(lab: Lab) -> None:
    lab.node("n1")
    job = lab.submit(total_steps=1000)
    report(begun(lab, job), 100, 512)
    job.refresh_from_db()
    assert (job.worth_done, job.work.done, job.work.left, job.last_step) == (None, 100, 900, 1000)


def test_a_gradient_that_is_all_but_zero_has_a_finite_noise(lab: Lab, job: Job) -> None:
    report(begun(lab, job), 100, 512, grad_sqr=1e-320, grad_var=1e15)
    job.refresh_from_db()
    assert job.work.done == pytest.approx(100 * 512 / 128)  # all noise: the more samples, the more worth
    assert job.last_step == 250
    assert worth_of_step(BATCH, float("inf"), 512) == 4


def test_steps_before_the_first_noise_are_worth_what_it_says(lab: Lab, job: Job) -> None:
    attempt = begun(lab, job)
    report(attempt, 100, 512, grad_sqr=None, grad_var=None)
    job.refresh_from_db()
    assert job.worth_done is None
    report(attempt, 110, 512)
    job.refresh_from_db()
    assert job.work.done == pytest.approx(110 * WORTH)


def test_what_is_left_counts_by_the_present_batch_though_its_report_has_no_noise(lab: Lab, job: Job) -> None:
    attempt = begun(lab, job)
    report(attempt, 100, 512)
    report(attempt, 110, 128, grad_sqr=None, grad_var=None, total_steps=1000)
    job.refresh_from_db()
    assert (job.noise_batch, job.work.left) == (128, pytest.approx(890))


@pytest.mark.parametrize(("initial", "worth"), [(None, 150), (128, 100 + 50 * WORTH), (256, (100 + 50 * WORTH) / 2)])
def test_a_job_that_continues_another_begins_with_the_worth_of_its_steps(
    lab: Lab, job: Job, initial: int | None, worth: float
) -> None:
    """As the other counts them; each step of one that is not tuned is one."""
    attempt = begun(lab, job)
    report(attempt, 100, 128)
    report(attempt, 200, 512, checkpoint_s=1.0, checkpoint_at=lab.now, checkpoint_step=150)
    if initial is None:
        Job.objects.update(batch_size={}, worth_done=None)
    limits = BATCH | {"initial": initial or 128}
    asked = Admitted({"batch_size": limits}, [], None, team=job.team, owner=job.owner)
    begun_job = begun_with(ChosenCheckpoint(Job.objects.get(), "step-150", 150), asked)
    assert begun_job.columns["worth_done"] == pytest.approx(worth)


def test_time_on_other_gpus_of_a_job_that_continues_another_is_of_its_own_steps(lab: Lab, job: Job) -> None:
    Job.objects.update(continues_step=900, step=900, worth_done=900.0)
    attempt = begun(lab, job)
    report(attempt, 1000, 512, first_step=900, reports=100)
    place = {"gpu_type": attempt.gpu_type, "gpus": 2, "nodes": 1, "batch_size": 512}
    Throughput.objects.create(team=job.team, workload=job.workload, steps_per_second=20, reports=9, **place)
    job.refresh_from_db()
    advice = read_gpu_advice(job, job.attempts.all())
    assert advice.own_run_s == pytest.approx(100 / 10, abs=0.2)
