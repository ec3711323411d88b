"""Pages of sweeps: one is started from YAML, watched with its charts, stopped and deleted."""

from datetime import timedelta
from uuid import uuid4

import pytest
from django.test import Client
from django.utils import timezone

from jobs_app.measurement.progress_curves import read_metric
from jobs_app.models import Job, ProgressCurve, Sweep, SweepTrial
from scheduler_app.sweeps.advance import advance_sweeps
from scheduler_app.sweeps.outlook import outlook_of
from sweeps.space import Range
from tests.service_lab import Lab
from web.pages.sweep_charts import parallel_figure, results_figure, sweep_figures, trials_with_curves
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


def test_a_population_is_shown_with_whose_weights_its_members_have(ada: Client, lab: Lab) -> None:
    given = "population: {size: 4, interval: 500, max_iter: 2000, keep: [width]}"
    asked = EXAMPLE.replace("bayes", "population").replace(
        "early_terminate: {min_iter: 500, max_iter: 20000, eta: 3}", given
    )
    ada.post("/sweeps/new", {"sweep": asked})
    sweep = Sweep.objects.get()
    advance_sweeps(timezone.now() + timedelta(minutes=1))
    sweep.trials.filter(number=3).update(
        source=1, source_step=510, replaces=2, changes={"lr": 0.01}, params={"lr": 0.012, "width": 64}
    )
    page = ada.get(f"/sweeps/{sweep.pk}").content.decode()
    assert "4 members, compared at 500, 1000, 1500 steps" in page
    assert "of trial 1,\n                step 510: lr 0.01 → 0.012" in page


def test_learning_curves_are_those_of_the_best_and_the_newest_trials(ada: Client, lab: Lab) -> None:
    ada.post("/sweeps/new", {"sweep": EXAMPLE})
    sweep = Sweep.objects.get()
    advance_sweeps(timezone.now() + timedelta(minutes=1))
    for trial in sweep.trials.all():
        points = [[1000 * n, 10 * n, None, {"val_loss": [10 * n, 1 / n]}] for n in range(1, 400)]
        ProgressCurve.objects.create(job_id=trial.job_id, spacing_s=2, last_at=timezone.now(), points=points)
    page = ada.get(f"/sweeps/{sweep.pk}").content.decode()
    assert "Val_loss by step" in page
    many = [
        SweepTrial(number=n, value=1 / (n + 1), job_id=uuid4(), state="succeeded", params={"x": 0.5})
        for n in range(100)
    ]
    drawn = trials_with_curves(sweep, many)
    assert [trial.number for trial in drawn] == [*range(85, 100)]
    best_first = trials_with_curves(Sweep(goal="maximize"), many)
    assert [trial.number for trial in best_first] == [*range(15), *range(85, 100)]
    curves = {trial.job_id: [(1, 0.5), (2, 0.4)] for trial in best_first}
    figures = sweep_figures(Sweep(goal="maximize", metric="loss"), many, {"x": Range(0, 1)}, (), curves)
    assert "loss by step: the best 15 of 100 trials and the newest 15" in figures
    (curve,) = read_metric([sweep.trials.first().job_id], "val_loss", 60).values()
    assert len(curve) <= 60
    assert curve[-1] == (3990, 1 / 399)


def test_cost_and_end_are_shown(ada: Client, lab: Lab) -> None:
    ada.post("/sweeps/new", {"sweep": EXAMPLE})
    sweep = Sweep.objects.get()
    advance_sweeps(timezone.now() + timedelta(minutes=1))
    trials = list(sweep.trials.all())
    Job.objects.filter(pk=trials[0].job_id).update(attained_gpu_s=7200, step=2000)
    sweep.trials.filter(number=0).update(state="stopped_early", values=[0.5, 0.4])
    sweep.trials.filter(number=1).update(state="succeeded", value=0.1)
    outlook = outlook_of(sweep, list(sweep.trials.all()), sweep.created_at + timedelta(hours=1))
    assert (outlook.gpu_hours, outlook.saved_gpu_hours) == (2.0, pytest.approx(18.0))
    assert outlook.ends_at is not None
    page = ada.get(f"/sweeps/{sweep.pk}").content.decode()
    ids = [f"{trials[1].job_id}", *(f"{trial.job_id}" for trial in trials[2:]), f"{trials[0].job_id}"]
    assert f"ids={','.join(ids)}" in page
    assert ada.get(f"/jobs/compare?ids={','.join(ids)}").status_code == 200
    for words in ("2 spent; about 18 saved", "Run the best again", "Continue the best", f"clone={trials[1].job_id}"):
        assert words in page


def test_faults_are_shown_at_the_form_and_what_was_written_stays(ada: Client) -> None:
    page = ada.post("/sweeps/new", {"sweep": EXAMPLE.replace("bayes", "bays")}).content.decode()
    assert "method: &#x27;bays&#x27; is not one of grid, random, bayes, population." in page
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
