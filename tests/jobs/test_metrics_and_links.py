"""Named metrics and links of a job: stored with its progress, shown over REST, on its page and on Compare."""

from datetime import timedelta

import pytest
from django.test import Client
from rest_framework.test import APIClient

from jobs_app.measurement.progress_reports import ProgressDelta, note_progress
from jobs_app.models import Job
from tests.rest_callers import caller
from tests.service_lab import Lab

WANDB = "https://wandb.ai/a/b"


@pytest.fixture
def job(lab: Lab) -> Job:
    """It has reported two points, the second with a link."""
    lab.node("n1", gpus=4)
    job = lab.submit()
    lab.recorded_as_running(job)
    report(lab, job, 1, {"val/acc": (10, 0.5)})
    report(lab, job, 2, {"val/acc": (20, 0.75)}, wandb=WANDB)
    return job


def report(lab: Lab, job: Job, number: int, metrics: dict[str, tuple[int, float]], **links: str) -> None:
    at = lab.now + timedelta(seconds=10 * number)
    attempt = job.attempts.get().pk
    note_progress([ProgressDelta(attempt, number, 10, lab.now, 10 * number, at, 1.5, metrics=metrics, links=links)])


def test_rest_has_the_curve_and_the_links(lab: Lab, job: Job) -> None:
    ada: APIClient = caller(lab.user())
    curve = ada.get(f"/api/v1/jobs/{job.pk}/curve").json()
    assert [(one["step"], one["loss"], one["metrics"]) for one in curve["points"]] == [
        (10, 1.5, {"val/acc": {"step": 10, "value": 0.5}}),
        (20, 1.5, {"val/acc": {"step": 20, "value": 0.75}}),
    ]
    assert curve["last"] == {"val/acc": {"step": 20, "value": 0.75}}
    assert ada.get(f"/api/v1/jobs/{job.pk}").json()["links"] == {"wandb": WANDB}
    assert caller(lab.user("eve", "language")).get(f"/api/v1/jobs/{job.pk}/curve").status_code == 404


def test_a_link_stays_when_a_later_attempt_names_none_or_another(lab: Lab, job: Job) -> None:
    report(lab, job, 3, {})
    report(lab, job, 4, {}, mlflow="https://mlflow.example.org/1")
    job.refresh_from_db()
    assert job.links == {"wandb": WANDB, "mlflow": "https://mlflow.example.org/1"}


def test_pages_draw_each_metric_and_link(lab: Lab, job: Job, plain_static: None) -> None:
    browser = Client()
    browser.force_login(lab.user())
    page = browser.get(f"/jobs/{job.pk}")
    assert "val/acc" in page.context["figures"]
    assert f'<a href="{WANDB}" rel="noopener noreferrer nofollow"' in page.content.decode()
    other = lab.submit()
    compared = browser.get(f"/jobs/compare?ids={job.pk},{other.pk}").context["figures"]
    assert [list(line["x"]) for line in compared["val/acc"]["data"]] == [[10, 20], []]
