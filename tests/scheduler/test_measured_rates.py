"""Progress reports become rates, and rates that were measured replace those that were declared."""

from math import log
from pathlib import Path

import pytest
from django.utils import timezone

from insight_app.explain.decisions import explain_job
from jobs_app.models import Job, Throughput
from jobs_app.models.throughput import MOST_RUNS
from scheduler_app.models import Round
from scheduler_app.round.archive import archive_of
from scheduler_app.round.inputs import MeasuredRow
from scheduler_app.round.snapshot import rate_spreads
from tests.service_lab import Lab

REPORTING = (
    'n=0; while :; do n=$((n+1)); echo "{\\"step\\": $n, \\"loss\\": 0.5}" >> $MOTLEY_PROGRESS; sleep 0.05; done'
)
"""At most 20 steps a second."""


def source(job: Job) -> str:
    return str(explain_job(job, timezone.now())["rates_used"][0]["source"])


@pytest.fixture
def reporting(lab: Lab) -> Job:
    """A job that promised a thousand steps a second, and does twenty."""
    lab.node("n1", gpus=1)
    job = lab.submit(REPORTING, rates={"a100": 1000})
    lab.until(lambda: Throughput.objects.filter(reports__gte=3).exists())
    lab.round()
    return job


def test_a_rate_of_which_nothing_is_known_is_assumed(lab: Lab) -> None:
    lab.node("n1")
    job = lab.submit("sleep 1000")
    lab.running(job)
    assert source(job) == "assumed"


def test_a_declared_rate_is_believed_at_first(lab: Lab) -> None:
    lab.node("n1")
    job = lab.submit("sleep 1000", rates={"a100": 1000})
    lab.running(job)
    assert source(job) == "declared"


def test_three_reports_replace_what_was_declared(reporting: Job) -> None:
    assert source(reporting) == "measured"


def test_the_measured_rate_is_what_the_job_did_and_not_what_it_promised(reporting: Job) -> None:
    """Reports are timed when they are read: on a busy machine three of them tell the rate roughly."""
    assert 0 < Throughput.objects.get().steps_per_second < 100


def test_the_job_shows_its_last_step(lab: Lab, reporting: Job) -> None:
    reporting.refresh_from_db()
    assert reporting.step >= 3


def test_another_job_of_the_workload_is_counted_at_the_measured_rate(lab: Lab, reporting: Job) -> None:
    other = lab.submit(REPORTING, rates={"a100": 1000})
    lab.round()
    assert source(other) == "measured"


def test_a_workload_of_that_name_in_another_team_is_another(lab: Lab, reporting: Job) -> None:
    other = lab.submit(REPORTING, owner=lab.user("bob", "language"), rates={"a100": 1000})
    lab.round()
    assert source(other) == "declared"


def test_the_sample_trains_at_no_more_than_the_emulated_rate(lab: Lab, job_python: Path) -> None:
    lab.node("n1")
    job = lab.submit(["python", "-m", "motley_client.sample", "--steps", "40"], rates={"a100": 40})
    lab.until_state(job, Job.State.SUCCEEDED)
    rate = lab.attempts(job)[0].measured_rate
    assert job.step == 40
    assert rate is not None
    assert 0 < rate < 42


def test_rates_are_merged_by_the_reports_behind_them() -> None:
    known = Throughput(steps_per_second=10, reports=3)
    known.add(rate=20, reports=1)
    assert (known.steps_per_second, known.reports) == (12.5, 4)


def test_the_spread_is_that_of_the_reports() -> None:
    known = Throughput(steps_per_second=0, reports=0)
    for rate in (10, 20):
        known.add(rate=rate, reports=1)
    assert known.spread == pytest.approx(5)


def measured_in_runs(*rates: float) -> Throughput:
    known = Throughput(steps_per_second=rates[0], reports=3)
    for rate in rates:
        known.add_run(rate=rate, before=None)
    return known


def deviation(known: Throughput) -> float:
    row = MeasuredRow(*(getattr(known, name) for name in MeasuredRow._fields))
    return row.measurement.deviation


def test_runs_of_unlike_rates_spread() -> None:
    known = measured_in_runs(10, 20)
    assert known.runs == 2
    assert deviation(known) == pytest.approx(log(2) / 2)


def test_a_run_counts_once_with_its_latest_rate() -> None:
    known = measured_in_runs(10, 20)
    known.add_run(rate=10, before=20)
    assert known.runs == 2
    assert deviation(known) == pytest.approx(0, abs=1e-6)


def test_runs_before_a_program_changed_are_forgotten() -> None:
    known = measured_in_runs(*[10] * MOST_RUNS, *[20] * (8 * MOST_RUNS))
    assert known.runs == 9 * MOST_RUNS
    assert deviation(known) < 0.05


def test_a_measured_rate_tells_its_limits_and_the_runs_behind_it(lab: Lab, reporting: Job) -> None:
    told = explain_job(reporting, timezone.now())["rates_used"][0]
    assert told["low"] < told["rate"] < told["high"]
    assert told["runs"] == 1


def test_forecasts_draw_rates_by_their_measured_spread(lab: Lab, reporting: Job) -> None:
    Throughput.objects.update(runs=MOST_RUNS, log_sum=0, log_square_sum=MOST_RUNS)  # a deviation of 1
    lab.round()
    record = Round.objects.latest_committed()
    assert record is not None
    archived = archive_of(record)
    assert archived is not None
    assert rate_spreads(archived.snapshot)[0] > 0.5
