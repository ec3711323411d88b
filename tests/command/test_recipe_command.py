"""`motley recipe`, and `motley submit recipe:NAME`: recipes are added from files, listed, changed, and submitted."""

from pathlib import Path

import pytest

from jobs_app.models import Job, Recipe
from tests.live_service import Live
from tests.motley_command import Motley

FILE = """\
recipe: train
description: ResNet on ImageNet
parameters:
  lr: 0.1
  data: {description: path of the data}
name: resnet
command: python train.py --lr ${{ lr }} ${{ data }}
gpus: 1
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "recipe.yaml"
    path.write_text(FILE)
    return str(path)


@pytest.fixture
def added(service: Live, motley: Motley, file: str) -> Recipe:
    made = motley("recipe", "add", file)
    assert (made.exit_code, "motley submit recipe:train" in made.stdout) == (0, True), made.stderr
    return Recipe.objects.get()


def test_a_job_is_submitted_with_values_and_other_fields(motley: Motley, added: Recipe) -> None:
    made = motley(
        "submit", "recipe:train", "--set", "lr=1e-4", "--set", "data=/my data", "--set", "retries=2", "--gpus", "2"
    )
    assert made.exit_code == 0, made.stderr
    job = Job.objects.get()
    assert (job.command, job.gpus_max, job.retries) == ("python train.py --lr 0.0001 '/my data'", 2, 2)
    assert (job.recipe, job.recipe_version, job.team.name) == (added, 1, "vision")
    assert motley("ps", "--recipe", "train", "-o", "name").stdout.strip() == str(job.pk)
    assert motley("ps", "--recipe", "other", "-o", "name").stdout.strip() == ""


def test_what_is_wrong_is_named_with_the_remedy(motley: Motley, added: Recipe) -> None:
    missing = motley("submit", "recipe:train")
    assert (missing.exit_code, "path of the data" in missing.stderr) == (2, True)
    misspelt = motley("submit", "recipe:train", "--set", "dat=/d")
    assert (misspelt.exit_code, "Did you mean 'data'?" in misspelt.stderr) == (2, True)
    gone = motley("submit", "recipe:other")
    assert (gone.exit_code, "motley recipe list" in gone.stderr) == (4, True)
    assert motley("submit", "recipe:train@x").exit_code == 2
    assert "no such version" in motley("submit", "recipe:train@7", "--set", "data=/d").stderr
    recurring = motley("recurring", "create", "recipe:train", "--schedule", "0 3 * * *")
    assert (recurring.exit_code, "motley recipe show train" in recurring.stderr) == (2, True)
    assert not Job.objects.exists()


def test_it_is_planned_without_a_submission(motley: Motley, added: Recipe) -> None:
    for words in (("plan", "recipe:train"), ("submit", "--dry-run", "recipe:train")):
        shown = motley(*words, "--set", "data=/d", "-o", "json")
        assert (shown.exit_code, '"/d"' in shown.stdout or "/d" in shown.stdout) == (0, True), shown.stderr
    assert not Job.objects.exists()


def test_it_is_listed_shown_changed_by_versions_and_deleted(motley: Motley, added: Recipe, tmp_path: Path) -> None:
    assert motley("recipe", "list").stdout.splitlines()[1].split()[:4] == ["train", "vision", "lr=0.1", "data"]
    newer = tmp_path / "newer.yaml"
    newer.write_text("parameters: {lr: 0.2}\nname: resnet\ncommand: better ${{ lr }}\ngpus: 1\n")
    assert "its version is 2" in motley("recipe", "change", "train", str(newer)).stdout
    assert "Nothing to change" in motley("recipe", "change", "train").stderr
    motley("submit", "recipe:train@1", "--set", "data=/d")
    motley("submit", "recipe:train")
    assert [job.command for job in Job.objects.order_by("pk")] == ["python train.py --lr 0.1 /d", "better 0.2"]
    shown = motley("recipe", "show", "train").stdout
    assert ("command: better ${{ lr }}" in shown, "ran 2 times" in shown) == (True, True)
    assert "its jobs stay" in motley("recipe", "delete", "train").stdout
    assert motley("recipe", "show", "train").exit_code == 4


def test_of_a_name_in_two_teams_the_team_is_asked_for(motley: Motley, added: Recipe, file: str) -> None:
    added.versions.get().author.teams.create(name="language")
    assert motley("recipe", "add", file, "--team", "language").exit_code == 0
    refused = motley("submit", "recipe:train", "--set", "data=/d")
    assert (refused.exit_code, "give --team" in refused.stderr) == (2, True)
    assert motley("submit", "recipe:train", "--set", "data=/d", "--team", "language").exit_code == 0
    assert Job.objects.get().team.name == "language"
