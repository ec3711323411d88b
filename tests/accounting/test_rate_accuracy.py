"""How good the rates were that rounds counted on: by source, on the page, over REST, as metrics."""

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client

from accounting_app.durations.rate_accuracy import judge_rates
from estimation.accuracy import FEWEST
from jobs_app.models import Attempt, Job
from operations.metrics import exposition
from tests.service_lab import UNTIL_LET_GO, Lab

Source = Attempt.RateSource


@pytest.fixture
def job(lab: Lab) -> Job:
    lab.node("emulated", "a100")
    return lab.submit()


def ended(lab: Lab, job: Job, *measured: float, expected: float, source: str = Source.FITTED, **columns: Any) -> None:
    """Attempts that made so many steps a second over a hundred seconds."""
    for rate in measured:
        end = lab.now
        reports = {"first_step": 50, "step": 50 + round(100 * rate), "reports": 5}
        times = {"first_step_at": end - timedelta(seconds=100), "step_at": end, "ended_at": end}
        fixed = {"state": Attempt.State.ENDED, "outcome": Attempt.Outcome.PREEMPTED, "nodes": ["real"]}
        lab.attempt(job, **(fixed | reports | times | {"rate": expected, "rate_source": source} | columns))


def test_rates_are_judged_by_their_source(lab: Lab, job: Job) -> None:
    ended(lab, job, *[2.0] * FEWEST, expected=3.0)
    ended(lab, job, 4.0, expected=4.0, source=Source.MEASURED)
    measured, fitted = judge_rates()
    assert (measured.source, measured.accuracy.n, measured.accuracy.is_chance) == (Source.MEASURED, 1, True)
    assert (fitted.source, fitted.accuracy.n) == (Source.FITTED, FEWEST)
    assert (fitted.accuracy.mape, fitted.accuracy.factor) == (pytest.approx(0.5), pytest.approx(1.5))


def test_a_slow_rate_has_an_error_too(lab: Lab, job: Job) -> None:
    ended(lab, job, 0.02, expected=0.01)
    assert judge_rates()[0].accuracy.mape == pytest.approx(0.5)


def test_the_rate_of_a_tuned_batch_is_compared_in_steps_of_that_batch(lab: Lab, job: Job) -> None:
    ended(lab, job, 2.0, expected=6.0, step_worth=3.0)
    assert judge_rates()[0].accuracy.mape == pytest.approx(0)


@pytest.mark.parametrize(
    "columns",
    [{"reports": 2}, {"nodes": ["emulated"]}, {"rate_source": ""}, {"step": 50}],
    ids=["two reports", "an emulated node", "a source unknown", "no step"],
)
def test_what_measures_nothing_is_not_judged(lab: Lab, job: Job, columns: dict[str, Any]) -> None:
    ended(lab, job, 2.0, expected=3.0, **columns)
    assert judge_rates() == []


def test_no_more_attempts_are_read_than_those_that_ended_last(
    lab: Lab, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended(lab, job, 2.0, 4.0, expected=4.0)
    monkeypatch.setattr("accounting_app.durations.rate_accuracy.MOST_READ", 1)
    (only,) = judge_rates()
    assert (only.accuracy.n, only.accuracy.mape) == (1, pytest.approx(0))


def test_a_round_records_where_the_rate_came_from_that_it_counted_on(lab: Lab, job: Job) -> None:
    declared = lab.submit(UNTIL_LET_GO, name="declared", rates={"a100": 4.0})
    lab.tick()
    sources = dict(Attempt.objects.values_list("job", "rate_source"))
    assert sources == {job.pk: Source.ASSUMED, declared.pk: Source.DECLARED}


@pytest.mark.usefixtures("plain_static")
def test_the_page_rest_and_metrics_have_the_figures(lab: Lab, job: Job, client: Client) -> None:
    client.force_login(lab.user())
    assert "No attempt on real GPUs with three progress reports has ended yet." in page(client)
    ended(lab, job, *[2.0] * FEWEST, expected=3.0)
    assert "fitted to the workload&#x27;s step times" in page(client)
    assert "50 %" in page(client)
    (found,) = client.get("/api/v1/estimates").json()["rates"]
    assert (found["source"], found["attempts"], found["too_few"]) == ("fitted", FEWEST, False)
    assert found["mean_absolute_error"] == pytest.approx(0.5)
    assert 'motley_rate_estimate_error_ratio{source="fitted"} 0.5' in exposition().decode()


def page(client: Client) -> str:
    return client.get("/estimates").content.decode()
