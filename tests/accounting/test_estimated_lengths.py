"""Jobs that declare no length: live rounds estimate it from jobs that ended, and remember what they said."""

from datetime import timedelta

import pytest

from accounting_app.models import DurationForecast
from estimation.durations import Basis
from insight_app.explain.remaining_work import remaining_work
from jobs_app.lifecycle.commands import cancel_job
from jobs_app.measurement.progress_reports import ProgressDelta, note_progress
from jobs_app.models import Attempt, Job
from scheduler_app.models import Round
from scheduler_app.round.archive import archive_of
from tests.service_lab import UNTIL_LET_GO, Lab

HOUR = 3600.0


@pytest.fixture
def cluster(lab: Lab) -> Lab:
    lab.node("n1", "a100", gpus=2)
    lab.policy("qssf")
    lab.user()
    return lab


def forecast(job: Job) -> DurationForecast:
    return DurationForecast.objects.get(pk=job.pk)


def remaining_s(job: Job) -> float:
    """As the policy was told in the last round: on the job's smallest gang of average GPUs."""
    record = Round.objects.latest_committed()
    assert record is not None
    snapshot = archive_of(record).snapshot
    row = snapshot.jobs.index(str(job.pk))
    return float(snapshot.problem.remaining_steps[row] / snapshot.problem.base_rate[row])


def test_of_two_jobs_without_a_length_the_one_like_earlier_short_ones_runs_first(cluster: Lab) -> None:
    cluster.succeeded("train-bert", 9 * HOUR, 10 * HOUR)
    cluster.succeeded("eval-bert", 60, 70)
    blocking = cluster.submit(UNTIL_LET_GO, name="blocking", gpus=2)
    cluster.running(blocking)
    long = cluster.submit(UNTIL_LET_GO, name="train-bert", gpus=2)
    short = cluster.submit("true", name="eval-bert", gpus=2)
    cluster.let_go(blocking)
    cluster.until_state(short, Job.State.SUCCEEDED)
    cluster.running(long)
    first = [Attempt.objects.get(job=job).round_number for job in (short, long)]
    assert first[0] < first[1]


def test_a_forecast_is_kept_from_submission_and_start_and_completed_with_the_truth(cluster: Lab) -> None:
    cluster.succeeded("train", 100, 100)
    job = cluster.submit("true", name="train")
    cluster.until_state(job, Job.State.SUCCEEDED)
    cluster.until(lambda: forecast(job).ended_at)
    kept = forecast(job)
    assert (kept.submission_s, kept.submission_basis, kept.submission_n) == (pytest.approx(100), Basis.SIMILAR, 2)
    assert (kept.start_s, kept.start_basis) == (pytest.approx(100), Basis.SIMILAR)
    job.refresh_from_db()
    assert kept.ended_at == job.finished_at
    assert kept.seconds == pytest.approx(job.ran_s, abs=1)


def test_a_declared_length_is_a_forecast_too(cluster: Lab) -> None:
    job = cluster.submit(UNTIL_LET_GO, name="train", total_steps=1200, rates={"a100": 4})
    cluster.tick()
    assert forecast(job).submission_basis == Basis.DECLARED
    assert forecast(job).submission_s == pytest.approx(300)


def test_before_any_job_has_ended_nothing_is_forecast_and_the_row_is_there_all_the_same(cluster: Lab) -> None:
    job = cluster.submit(UNTIL_LET_GO, name="train")
    cluster.tick()
    assert (forecast(job).submission_s, forecast(job).submission_basis) == (None, "")
    assert remaining_s(job) == float("inf")


@pytest.mark.parametrize("command", ["false", UNTIL_LET_GO])
def test_of_a_job_that_does_not_succeed_no_duration_is_kept(cluster: Lab, command: str) -> None:
    job = cluster.submit(command, name="train")
    cluster.tick()
    if command == "false":
        cluster.until_state(job, Job.State.FAILED)
    else:
        cluster.running(job)
        cancel_job(job, actor=cluster.user())
        cluster.until_state(job, Job.State.CANCELLED)
    cluster.until(lambda: not DurationForecast.objects.filter(pk=job.pk).exists())


def test_what_is_left_shrinks_while_the_job_runs_and_is_never_nothing(cluster: Lab) -> None:
    cluster.succeeded("train", *[100.0] * 30)
    job = cluster.submit(UNTIL_LET_GO, name="train")
    cluster.running(job)
    cluster.round()
    at_first = remaining_s(job)
    cluster.ahead += timedelta(seconds=60)
    cluster.round()
    later = remaining_s(job)
    cluster.ahead += timedelta(hours=10)
    cluster.round()
    assert at_first > later > 0
    assert remaining_s(job) > 0


def test_a_job_that_reports_nothing_is_not_behind_one_that_reports_its_steps(cluster: Lab) -> None:
    """By its finish-time fairness: an hour of work counts as done, as it is no longer among what is left."""
    cluster.succeeded("train", *[2 * HOUR] * 5)
    job = cluster.submit(UNTIL_LET_GO, name="train")
    cluster.running(job)
    cluster.ahead += timedelta(hours=1)
    cluster.round()
    record = Round.objects.latest_committed()
    assert record is not None
    problem = archive_of(record).snapshot.problem
    done_s = (problem.total_steps - problem.remaining_steps) / problem.base_rate
    assert done_s.tolist() == pytest.approx([HOUR], abs=60)
    assert problem.isolated_s[0] >= HOUR


def test_a_job_that_reports_how_many_steps_it_makes_is_not_estimated_from_others(cluster: Lab) -> None:
    cluster.succeeded("train", 9 * HOUR)
    job = cluster.submit(UNTIL_LET_GO, name="train")
    cluster.running(job)
    attempt, start = job.attempts.get(), cluster.now - timedelta(seconds=60)
    note_progress(
        [ProgressDelta(attempt.pk, 2, 100, start, 400, start + timedelta(seconds=60), None, total_steps=1000)]
    )
    cluster.round()
    record = Round.objects.latest_committed()
    assert record is not None
    problem = archive_of(record).snapshot.problem
    assert (problem.remaining_steps.tolist(), problem.total_steps.tolist()) == ([600], [1000])
    job.refresh_from_db()
    found = remaining_work(job, list(job.attempts.all()), cluster.now)
    assert found is not None
    assert (found.basis, found.seconds, found.detail) == (Basis.REPORTED, 120, "from the steps it reports")


def test_a_round_reads_no_more_than_the_jobs_that_ended_last(cluster: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("accounting_app.durations.duration_history.MOST_ENDED", 2)
    cluster.succeeded("train", 1 * HOUR, 50, 50)  # the oldest is not read
    job = cluster.submit(UNTIL_LET_GO, name="train")
    cluster.tick()
    assert forecast(job).submission_s == pytest.approx(50)


def test_how_long_a_few_jobs_of_other_teams_took_is_not_told(cluster: Lab) -> None:
    eve = cluster.user("eve", "language")
    cluster.succeeded("secret-merger", 500, owner=eve, team="language")
    job = cluster.submit(UNTIL_LET_GO, name="secret-merger")
    cluster.tick()
    assert forecast(job).submission_basis == Basis.ALL  # as rounds may know it
    assert remaining_work(job, [], cluster.now) is None


def test_durations_of_other_owners_count_only_where_the_owner_has_none_of_the_name(cluster: Lab) -> None:
    cluster.succeeded("train", 500, owner=cluster.user("bob"))
    cluster.succeeded("quite-another", 50)
    job = cluster.submit(UNTIL_LET_GO, name="train")
    other = cluster.submit(UNTIL_LET_GO, name="quite-another")
    cluster.tick()
    assert (forecast(job).submission_basis, forecast(job).submission_s) == (Basis.SIMILAR_OF_TEAM, pytest.approx(500))
    assert forecast(other).submission_basis == Basis.SIMILAR


def test_a_job_that_starts_after_one_that_took_longer_is_expected_to_take_longer(cluster: Lab) -> None:
    cluster.succeeded("prepare", 100)
    cluster.succeeded("train", 500)
    first = cluster.submit(name="prepare")
    then = cluster.submit(UNTIL_LET_GO, name="train", after=[{"job": str(first.pk), "on": "success"}])
    DurationForecast.objects.create(
        job=first.pk,
        owner=first.owner,
        team=first.team,
        name="prepare",
        gpus=1,
        submission_s=100,
        submission_basis=Basis.SIMILAR,
        seconds=400,
        ended_at=cluster.now,
    )
    Job.objects.filter(pk=first.pk).update(state=Job.State.SUCCEEDED, finished_at=cluster.now)
    cluster.running(then)
    found = forecast(then)
    assert (found.submission_basis, found.submission_s) == (Basis.STAGES, pytest.approx(1000))
    told = remaining_work(then, [], cluster.now)
    assert told is not None
    assert told.seconds == pytest.approx(1000)
    assert "the 1 stage before" in told.detail
