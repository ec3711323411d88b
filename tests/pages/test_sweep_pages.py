"""Pages of sweeps: one is started from YAML, watched with its charts, stopped and deleted."""

from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from jobs_app.models import Sweep, SweepTrial
from scheduler_app.sweeps.advance import advance_sweeps
from sweeps.space import Range
from tests.service_lab import Lab
from web.pages.sweep_charts import parallel_figure, results_figure
from web.pages.sweeps import EXAMPLE


@pytest.fixture
def ada(lab: Lab) -> Client:
    lab.node("n1", gpus=4)
    client = Client()
    client.force_login(lab.user())
    return client


def test_a_sweep_is_started_from_the_example_and_shown_with_its_trials(ada: Client, lab: Lab) -> None:
    assert "lr-search" in ada.get("/sweeps/new").content.decode()
    answer = ada.post("/sweeps/new", {"sweep": EXAMPLE}, follow=True)
    sweep = Sweep.objects.get()
    assert answer.redirect_chain[-1][0] == f"/sweeps/{sweep.pk}"
    advance_sweeps(timezone.now() + timedelta(minutes=1))
    trials = list(sweep.trials.all())
    assert trials
    for trial, value in zip(trials, (0.3, 0.1, 0.2), strict=False):
        trial.state, trial.value, trial.values = SweepTrial.State.SUCCEEDED, value, [value * 2, value]
        trial.save()
    page = ada.get(f"/sweeps/{sweep.pk}").content.decode()
    for words in ("lr-search", "val_loss 0.1", "trial 1", "Val_loss by trial", "Val_loss by hyper-parameter"):
        assert words in page
    assert page.index(f'id="trial-{trials[1].number}"') < page.index(f'id="trial-{trials[0].number}"'), "the best first"
    assert "as trial 0 of" in ada.get(f"/jobs/{trials[0].job_id}").content.decode()
    assert "plotly" in page, "the figures are drawn by it"
    assert "lr-search" in ada.get("/sweeps").content.decode()


def test_faults_are_shown_at_the_form_and_what_was_written_stays(ada: Client) -> None:
    page = ada.post("/sweeps/new", {"sweep": EXAMPLE.replace("bayes", "bays")}).content.decode()
    assert "method: &#x27;bays&#x27; is not one of grid, random, bayes." in page
    assert "method: bays" in page
    assert not Sweep.objects.exists()


def test_it_is_stopped_and_deleted(ada: Client) -> None:
    ada.post("/sweeps/new", {"sweep": EXAMPLE})
    sweep = Sweep.objects.get()
    assert "stop it first" in ada.post(f"/sweeps/{sweep.pk}/delete", follow=True).content.decode()
    ada.post(f"/sweeps/{sweep.pk}/stop")
    advance_sweeps(timezone.now() + timedelta(minutes=1))
    sweep.refresh_from_db()
    assert sweep.state == Sweep.State.STOPPED
    assert "Stopped by ada." in ada.get(f"/sweeps/{sweep.pk}").content.decode()
    ada.post(f"/sweeps/{sweep.pk}/delete")
    assert not Sweep.objects.exists()


def test_another_team_sees_nothing_of_it(ada: Client, lab: Lab) -> None:
    ada.post("/sweeps/new", {"sweep": EXAMPLE})
    stranger = Client()
    stranger.force_login(lab.user("eve", "language"))
    pk = Sweep.objects.get().pk
    assert stranger.get(f"/sweeps/{pk}").status_code == 404
    assert stranger.post(f"/sweeps/{pk}/stop").status_code == 404
    assert "lr-search" not in stranger.get("/sweeps").content.decode()


def test_the_best_so_far_is_that_of_trials_that_succeeded() -> None:
    sweep = Sweep(metric="loss", goal=Sweep.Goal.MINIMIZE)
    states = (SweepTrial.State.SUCCEEDED, SweepTrial.State.FAILED, SweepTrial.State.STOPPED_EARLY)
    ended = [
        SweepTrial(number=number, state=state, value=value, params={"x": number - 1})
        for number, (state, value) in enumerate(zip(states, (0.5, 0.1, 0.3), strict=True))
    ]
    best = next(trace for trace in results_figure(sweep, ended)["data"] if trace["name"] == "best so far")
    assert list(best["y"]) == [0.5]
    lines = parallel_figure(sweep, ended, {"x": Range(-1, 1)})["data"]
    assert sorted({height for line in lines for height in line["y"][::3]}) == [0.0, 0.5, 1.0]
