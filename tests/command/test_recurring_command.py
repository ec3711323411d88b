"""`motley recurring`: recurring jobs are created from files and options, listed, shown, paused, run and deleted."""

from pathlib import Path

import pytest

from jobs_app.models import Job, RecurringJob
from scheduler_app.recurring_jobs.editing import add_recurring_job, admitted_recurring_job
from tests.live_service import Live
from tests.motley_command import Motley

FILE = """\
schedule: "0 3 * * *"
timezone: Europe/Berlin
concurrency: allow
recurring_name: nightly
name: train
command: python train.py
gpus: 1
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "nightly.yaml"
    path.write_text(FILE)
    return str(path)


def test_a_file_has_its_schedule_beside_the_job(service: Live, motley: Motley, file: str) -> None:
    made = motley("recurring", "create", file, "--missed", "once", "--schedule", "0 4 * * *")
    assert (made.exit_code, "nightly of team vision recurs" in made.stdout) == (0, True), made.stderr
    row = RecurringJob.objects.get()
    assert (row.name, row.schedule, row.zone) == ("nightly", "0 4 * * *", "Europe/Berlin")
    assert (row.concurrency, row.missed) == ("allow", "once")
    assert row.spec == {"name": "train", "command": "python train.py", "gpus": 1}


def test_options_alone_describe_one(service: Live, motley: Motley) -> None:
    words = ("--schedule", "@daily", "--gpus", "1", "--", "python", "eval.py")
    refused = motley("recurring", "create", *words)
    assert (refused.exit_code, "five fields" in refused.stderr) == (2, True)
    assert motley("recurring", "create", "--schedule", "0 3 * * *", *words[2:]).exit_code == 0
    assert RecurringJob.objects.get().name == "eval"
    assert "No schedule" in motley("recurring", "create", *words[2:]).stderr


def test_it_is_listed_run_shown_paused_resumed_and_deleted(service: Live, motley: Motley, file: str) -> None:
    motley("recurring", "create", file)
    assert motley("recurring", "list").stdout.splitlines()[1].split()[:2] == ["nightly", "vision"]
    job = motley("recurring", "run", "nightly", "-o", "name").stdout.strip()
    assert Job.objects.get().pk.hex == job.replace("-", "")
    shown = motley("recurring", "show", "nightly").stdout
    assert "command: python train.py" in shown
    assert (job in shown, "run by ada" in shown) == (True, True)
    assert motley("ps", "--recurring", "nightly", "-o", "name").stdout.strip() == job
    assert motley("ps", "--recurring", "other", "-o", "name").stdout.strip() == ""
    assert motley("recurring", "pause", "nightly").stdout == "nightly is paused.\n"
    assert "paused" in motley("recurring", "list").stdout
    assert "its runs are jobs of ada" in motley("recurring", "resume", "nightly").stdout
    assert "its jobs stay" in motley("recurring", "delete", "nightly").stdout
    gone = motley("recurring", "delete", "nightly")
    assert (gone.exit_code, "No recurring job named nightly" in gone.stderr) == (4, True)


def test_of_a_name_in_two_teams_the_team_is_asked_for(service: Live, motley: Motley, file: str) -> None:
    motley("recurring", "create", file)
    spec = {"name": "a", "command": "true", "gpus": 1, "team": "language"}
    row = RecurringJob.objects.get()
    row.owner.teams.create(name="language")
    asked = {"name": "nightly", "schedule": "0 3 * * *", "spec": spec}
    add_recurring_job(admitted_recurring_job(asked, owner=row.owner, now=row.created_at))
    refused = motley("recurring", "pause", "nightly")
    assert (refused.exit_code, "give --team" in refused.stderr) == (2, True)
    assert motley("recurring", "pause", "nightly", "--team", "language").exit_code == 0
    row.refresh_from_db()
    assert row.paused_at is None
