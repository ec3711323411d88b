"""`motley sweep`: sweeps are started from files, listed, shown, stopped and deleted."""

import json
from pathlib import Path

import pytest
from django.utils import timezone

from jobs_app.models import Job, Sweep, SweepTrial
from scheduler_app.sweeps.advance import advance_sweeps
from tests.live_service import Live
from tests.motley_command import Motley

FILE = """\
kind: sweep
name: lr-search
method: random
metric: {name: val_loss, goal: minimize}
parameters:
  lr: {min: 1e-5, max: 1e-1, distribution: log_uniform_values}
  width: {values: [64, 128]}
run_cap: 3
command: python train.py --lr {lr} --width {width}
gpus: 1
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "sweep.yaml"
    path.write_text(FILE)
    return str(path)


def test_it_is_started_listed_shown_stopped_and_deleted(service: Live, motley: Motley, file: str) -> None:
    started = motley("sweep", "start", file)
    assert (started.exit_code, started.stdout) == (0, "Started lr-search of team vision: at most 3 trials.\n")
    Sweep.objects.update(advanced_at="2026-01-01T00:00Z")
    advance_sweeps(timezone.now())
    jobs = motley("sweep", "trials", "lr-search", "-o", "name").stdout.split()
    assert len(jobs) == Job.objects.count() == 3
    row = motley("sweep", "list").stdout.splitlines()[1].split()
    assert row[:4] == ["lr-search", "vision", "running", "0/3"]
    shown = motley("sweep", "show", "lr-search").stdout
    for words in (
        "3 running; at most 3, 16 at a time",
        "random, minimize val_loss",
        "distribution: log_uniform_values",
    ):
        assert words in shown
    none_yet = motley("sweep", "best", "lr-search")
    assert (none_yet.exit_code, "No trial of lr-search has succeeded yet" in none_yet.stderr) == (2, True)
    SweepTrial.objects.filter(number=1).update(state="succeeded", value=0.25)
    assert motley("sweep", "best", "lr-search", "-o", "name").stdout.strip() == jobs[1]
    refused = motley("sweep", "delete", "lr-search")
    assert (refused.exit_code, "stop it first" in refused.stderr) == (5, True)
    assert motley("sweep", "stop", "lr-search").stdout == "lr-search is stopping.\n"
    Sweep.objects.update(state="stopped", ended_at=timezone.now())
    assert "its jobs stay" in motley("sweep", "delete", "lr-search").stdout
    assert motley("sweep", "show", "lr-search").exit_code == 4


def test_a_population_is_shown_with_whose_weights_its_members_have(
    service: Live, motley: Motley, tmp_path: Path
) -> None:
    path = tmp_path / "sweep.yaml"
    given = "population: {size: 3, interval: 500, max_iter: 2000}"
    path.write_text(FILE.replace("method: random", "method: population").replace("run_cap: 3", given))
    assert motley("sweep", "start", str(path)).exit_code == 0
    Sweep.objects.update(advanced_at="2026-01-01T00:00Z")
    advance_sweeps(timezone.now())
    new = {"lr": 0.012, "width": 64}
    SweepTrial.objects.filter(number=2).update(source=1, source_step=510, replaces=0, changes={"lr": 0.01}, params=new)
    assert "of trial 1, step 510: lr 0.01 → 0.012" in motley("sweep", "trials", "lr-search").stdout
    SweepTrial.objects.filter(number=1).update(state="resting")
    assert " held " in motley("sweep", "trials", "lr-search").stdout
    shown = motley("sweep", "show", "lr-search").stdout
    for words in ("3 members, compared every 500 steps before 2,000; copies of the best quarter", "1 held", "0 spent"):
        assert words in shown
    (row,) = json.loads(motley("sweep", "list", "-o", "json").stdout)
    assert (row["marks"], row["rungs"]) == ([500, 1000, 1500], [])


def test_faults_name_the_field(service: Live, motley: Motley, tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(FILE.replace("run_cap", "runcap"))
    refused = motley("sweep", "start", str(path))
    assert (refused.exit_code, "Unknown field 'runcap'" in refused.stderr) == (2, True)
    path.write_text(FILE.replace("max: 1e-1", "max: 1e-9"))
    assert "parameters.lr: min, 1e-05, must be less than max, 1e-09" in motley("sweep", "start", str(path)).stderr
    path.write_text("- a\n- b\n")
    assert "describes no sweep" in motley("sweep", "start", str(path)).stderr


def test_each_command_names_the_one_that_takes_the_file(service: Live, motley: Motley, tmp_path: Path) -> None:
    path = tmp_path / "search.yaml"
    path.write_text(FILE)
    assert f"motley sweep start {path}" in motley("submit", str(path)).stderr
    path.write_text("entrypoint: python train.py\nsearcher: {name: random, metric: loss, max_trials: 3}\n")
    assert f"motley convert {path}" in motley("sweep", "start", str(path)).stderr
