"""Pages of sweeps: one is started from YAML, watched with its charts, stopped and deleted."""

import os
import re
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from django.test import Client
from django.utils import timezone

from jobs_app.measurement.progress_curves import read_metric
from jobs_app.models import Job, ProgressCurve, Sweep, SweepTrial
from scheduler_app.sweeps.advance import advance_sweeps
from scheduler_app.sweeps.outlook import outlook_of
from sweeps.space import Range
from tests.deployment import ROOT
from tests.service_lab import Lab
from web.pages.sweep_charts import parallel_figure, results_figure, rungs_figure, sweep_figures, trials_with_curves
from web.pages.sweeps import EXAMPLE

SWEEP = """\
name: lr-search
command: python train.py --lr {lr} --width {width}
gpus: 1
method: bayes
metric: {name: val_loss, goal: minimize}
parameters:
  lr: {min: 1.0e-5, max: 1.0e-1, distribution: log_uniform_values}
  width: {values: [64, 128, 256]}
early_terminate: {min_iter: 500, max_iter: 20000, eta: 3}
run_cap: 50
"""


COMMAND = "command: python train.py --lr {lr} --width {width}\ngpus: 1\n"


@pytest.fixture
def ada(lab: Lab) -> Client:
    lab.node("n1", gpus=4)
    client = Client()
    client.force_login(lab.user())
    return client


def test_a_sweep_is_started_from_the_example_and_shown_with_its_trials(ada: Client, lab: Lab) -> None:
    assert "name: spirals" in ada.get("/sweeps/new").content.decode()
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
    for words in ("spirals", "loss 0.1", "trial 1", "<h2>loss by trial</h2>", "<h2>loss by hyperparameter</h2>"):
        assert words in page
    assert page.index(f'id="trial-{trials[1].number}"') < page.index(f'id="trial-{trials[0].number}"'), "the best first"
    assert "as trial 0 of" in ada.get(f"/jobs/{trials[0].job_id}").content.decode()
    assert "plotly" in page, "the figures are drawn by it"
    Sweep.objects.update(message="6 trials failed")
    listed = ada.get("/sweeps").content.decode()
    assert "spirals" in listed
    assert "6 trials failed" in listed


def test_a_population_is_shown_with_whose_weights_its_members_have(ada: Client, lab: Lab) -> None:
    given = "population: {size: 4, interval: 500, max_iter: 2000, keep: [width]}"
    asked = SWEEP.replace("bayes", "population").replace(
        "early_terminate: {min_iter: 500, max_iter: 20000, eta: 3}", given
    )
    ada.post("/sweeps/new", {"sweep": asked})
    sweep = Sweep.objects.get()
    advance_sweeps(timezone.now() + timedelta(minutes=1))
    sweep.trials.filter(number=3).update(
        source=1, source_step=1510, replaces=2, changes={"lr": 0.01}, params={"lr": 0.012, "width": 64}
    )
    page = ada.get(f"/sweeps/{sweep.pk}").content.decode()
    assert "4 members, compared every 500 steps before\n          2,000: " in page
    assert "of trial 1,\n                step 1,510: lr 0.01 → 0.012" in page


def test_a_trial_that_is_held_shows_its_last_value_and_is_called_held(ada: Client, lab: Lab) -> None:
    ada.post("/sweeps/new", {"sweep": SWEEP})
    sweep = Sweep.objects.get()
    advance_sweeps(timezone.now() + timedelta(minutes=1))
    sweep.trials.filter(number=0).update(state="resting", values=[0.75])
    page = ada.get(f"/sweeps/{sweep.pk}").content.decode()
    assert '<span\n              class="dim" title="At its last rung">0.75</span>' in page
    assert "1 held ·" in page
    assert "741, 2,222, 6,667, 20,000 steps" in page


def test_the_examples_of_the_documentation_are_accepted_and_its_script_runs(ada: Client, tmp_path: Path) -> None:
    text = (ROOT / "docs" / "sweeps.md").read_text()
    example, whole, population = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    assert example == EXAMPLE
    for number, given in enumerate((example, whole.replace("code: .", "#"), f"{COMMAND}{population}")):
        named = f"{re.sub('^name:.*', '', given, flags=re.MULTILINE)}\nname: sweep-{number}"
        assert ada.post("/sweeps/new", {"sweep": named}).status_code == 302, named
    (script,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    train = [sys.executable, "-c", script, "--lr", "0.001", "--width", "64"]
    environment = {"PATH": os.environ["PATH"], "MOTLEY_PROGRESS": str(tmp_path / "progress")}
    assert subprocess.run(train, cwd=tmp_path, env=environment, check=False).returncode == 0
    assert '"val_loss"' in (tmp_path / "progress").read_text().splitlines()[-1]


def test_learning_curves_are_those_of_the_best_and_the_newest_trials(ada: Client, lab: Lab) -> None:
    ada.post("/sweeps/new", {"sweep": SWEEP})
    sweep = Sweep.objects.get()
    advance_sweeps(timezone.now() + timedelta(minutes=1))
    for trial in sweep.trials.all():
        points = [[1000 * n, 10 * n, None, {"val_loss": [10 * n, 1 / n]}] for n in range(1, 400)]
        ProgressCurve.objects.create(job_id=trial.job_id, spacing_s=2, last_at=timezone.now(), points=points)
    page = ada.get(f"/sweeps/{sweep.pk}").content.decode()
    assert "<h2>val_loss by step</h2>" in page
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
    ada.post("/sweeps/new", {"sweep": SWEEP})
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
    page = ada.post("/sweeps/new", {"sweep": SWEEP.replace("bayes", "bays")}).content.decode()
    assert "method: &#x27;bays&#x27; is not one of grid, random, bayes, population." in page
    assert "method: bays" in page
    assert not Sweep.objects.exists()


def test_it_is_stopped_and_deleted(ada: Client) -> None:
    ada.post("/sweeps/new", {"sweep": SWEEP})
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
    ada.post("/sweeps/new", {"sweep": SWEEP})
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
    by_parameter = parallel_figure(sweep, ended, {"x": Range(-1, 1)})
    assert sorted({height for line in by_parameter["data"] for height in line["y"][::3]}) == [0.0, 0.5, 1.0]
    assert list(by_parameter["layout"]["xaxis"]["ticktext"]) == ["x<br>-1 to<br>1", "loss<br>0.1 to<br>0.5"]


def test_the_axis_of_rungs_has_the_rungs() -> None:
    trials = [SweepTrial(number=0, values=[0.5, 0.25])]
    axis = rungs_figure(Sweep(metric="loss"), trials, (500, 1500))["layout"]["xaxis"]
    assert (axis["type"], list(axis["tickvals"]), list(axis["ticktext"])) == ("log", [500, 1500], ["500", "1,500"])
