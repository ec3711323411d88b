"""Checkpoints of a job: listed with what it reported, and begun with by new jobs, whatever becomes of them later."""

import socket
import tarfile
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from django.test import Client
from django.utils import timezone

from connections_app.agents.uploads import checkpoints_of
from connections_app.checkpoints.copying import _add, begun_with, choose, copied
from connections_app.checkpoints.listing import Checkpoint, Saved, joined, read_checkpoints
from connections_app.errors import CheckpointNotCopied
from engines.job_files import MOST_LISTED
from engines.protocol import OpenedFile
from jobs_app.errors import InvalidSpec
from jobs_app.measurement.checkpoint_history import MOST_KEPT, MadeCheckpoint, reported_checkpoints
from jobs_app.measurement.progress_curves import PointOfTime
from jobs_app.measurement.progress_reports import ProgressDelta, note_progress
from jobs_app.models import Job
from jobs_app.submission.submit import admitted
from operations.job_file_retention import discard_files, measure_files
from tests.rest_callers import SPEC, caller
from tests.service_lab import Lab

SAVES = """
cd $MOTLEY_CHECKPOINT_DIR
if [ $MOTLEY_RESUME = 1 ]; then find . -type f | sort | xargs cat; exit; fi
mkdir checkpoint-500; echo five hundred > checkpoint-500/weights; echo a thousand > step=1000.ckpt; echo > .unfinished
"""


def test_a_new_job_begins_with_a_checkpoint_and_both_say_so(lab: Lab, plain_static: None) -> None:
    lab.node("n1", gpus=1)
    source = lab.until_state(lab.submit(SAVES), Job.State.SUCCEEDED)
    ada, browser = caller(lab.user()), Client()
    browser.force_login(lab.user())
    address = f"/api/v1/jobs/{source.pk}"
    listed = ada.get(f"{address}/checkpoints").json()["checkpoints"]
    assert {one["name"]: (one["kept"], one["step"], one["size"]) for one in listed} == {
        "checkpoint-500": (True, 500, 13),
        "step=1000.ckpt": (True, 1000, 11),
    }
    new = ada.post(f"{address}/clone?checkpoint=checkpoint-500", {"name": "again"}, format="json").json()
    assert (new["continues"], new["continues_from"], new["continues_step"]) == (str(source.pk), "checkpoint-500", 500)
    assert new["progress"]["step"] == 500
    (lab.root / "jobs" / str(source.pk) / "checkpoints" / "checkpoint-500" / "weights").write_text("changed since")
    again = lab.until_state(Job.objects.get(pk=new["id"]), Job.State.SUCCEEDED)
    assert lab.output(again) == "five hundred\n"
    assert checkpoints_of(again.pk).exists()
    measure_files()
    assert not checkpoints_of(again.pk).exists()  # it is unpacked
    assert ada.get(f"{address}/checkpoints").json()["continued_by"] == [
        {"id": new["id"], "name": "again", "continues_from": "checkpoint-500", "continues_step": 500}
    ]
    assert "Jobs that began with one of them" in browser.get(f"/jobs/{source.pk}?tab=checkpoints").content.decode()
    assert (
        f'from step 500 of\n            <a href="/jobs/{source.pk}?tab=checkpoints">'
        in browser.get(f"/jobs/{again.pk}").content.decode()
    )
    form = browser.get(f"/jobs/new?clone={source.pk}&checkpoint=.").content.decode()
    assert 'name="checkpoint" value="."' in form
    sent = {"mode": "yaml", "yaml": "name: whole\ncommand: env\ngpus: 1\n", "source": source.pk, "checkpoint": "."}
    assert browser.post("/jobs/new", sent).status_code == 302
    whole = Job.objects.get(name="whole")
    with tarfile.open(checkpoints_of(whole.pk)) as archive:
        assert sorted(archive.getnames()) == ["checkpoint-500/weights", "step=1000.ckpt"]
    refused = browser.post("/jobs/new", sent | {"checkpoint": "step=1"}).content.decode()
    assert "has no checkpoint &#x27;step=1&#x27; (any more)" in refused
    assert ada.post(f"{address}/clone?checkpoint=step=1").status_code == 409
    discard_files(Job.objects.filter(pk=whole.pk))  # it was never launched
    assert not checkpoints_of(whole.pk).exists()
    with pytest.raises(InvalidSpec, match="Tasks of an array cannot begin with a checkpoint"):
        begun_with(choose(source, "."), admitted(SPEC | {"array": "0-1"}, lab.user()))


def test_what_is_no_checkpoint_is_neither_listed_nor_copied_in_part(lab: Lab) -> None:
    lab.node("n1", gpus=1)
    job = lab.submit()
    lab.attempt(job, launched_at=lab.now)
    folder = lab.root / "jobs" / str(job.pk) / "checkpoints"
    for name in ("step-3", "many", "cached", "empty"):
        (folder / name).mkdir(parents=True)
    (folder / "step-3" / "weights").write_text("three")
    (folder / "step=4.ckpt").write_text("four")
    (folder / "last.ckpt").symlink_to("step=4.ckpt")
    (folder / "cached" / "weights").symlink_to("../step-3/weights")
    for number in range(MOST_LISTED + 1):
        (folder / "many" / str(number)).touch()
    sizes = {one.name: one.size for one in read_checkpoints(job)}
    assert sizes == {"step-3": 5, "step=4.ckpt": 4, "many": None, "cached": 0, "empty": 0}  # a link is none
    for name, file in (("step-3", "step-3/weights"), ("step=4.ckpt", "step=4.ckpt")):
        new = uuid4()
        with copied(choose(job, name), new), tarfile.open(checkpoints_of(new)) as archive:
            assert archive.getnames() == [file]
    for name, fault in (
        ("many", f"checkpoints/many has {MOST_LISTED:,} files or more"),
        (".", f"checkpoints/many has {MOST_LISTED:,} files or more"),
        ("cached", "checkpoints/cached/weights is a link"),
        ("empty", "The checkpoint has no files"),
        ("last.ckpt", "has no checkpoint 'last.ckpt'"),
    ):
        with pytest.raises(CheckpointNotCopied, match=fault), copied(choose(job, name), uuid4()):
            pass


def test_a_file_that_only_its_server_has_is_refused_at_once(tmp_path: Path) -> None:
    here, server = socket.socketpair()
    server.shutdown(socket.SHUT_WR)  # a read would end, not hang
    with (
        server,
        tarfile.open(tmp_path / "copy.tar.gz", "x:gz") as archive,
        pytest.raises(CheckpointNotCopied, match="is on a server"),
    ):
        _add(archive, "checkpoints/weights", OpenedFile(here.detach(), 5))


def test_checkpoints_on_machines_that_joined_are_one_archive(lab: Lab, tmp_path: Path) -> None:
    lab.node("n1", gpus=1)
    job = lab.submit()
    with pytest.raises(CheckpointNotCopied, match="has saved no checkpoint"):
        choose(job, ".")
    archive = checkpoints_of(job.pk)
    archive.parent.mkdir(parents=True)
    archive.write_bytes(b"packed")
    (found,) = read_checkpoints(job)
    assert (found.name, found.kept, found.size) == ("", True, 6)
    assert str(choose(job, ".")) == "the checkpoints of job"


def test_reports_are_kept_and_joined_with_files(lab: Lab) -> None:
    lab.node("n1", gpus=1)
    job = lab.submit()
    lab.recorded_as_running(job)
    attempt, began = job.attempts.get().pk, lab.now
    for number in range(1, MOST_KEPT + 3):
        at = began + timedelta(minutes=number)
        note_progress([
            ProgressDelta(
                *(attempt, number, 0, began, 10 * number, at, 0.5),
                checkpoint_s=3.0, checkpoint_at=at, checkpoint_step=10 * number - 1,
            )
        ])  # fmt: skip
        if number > 2:  # a report of the same checkpoint adds none
            note_progress([
                ProgressDelta(attempt, number, 0, began, 10 * number, at, 0.5, checkpoint_s=3.0, checkpoint_at=at)
            ])  # fmt: skip
    made = reported_checkpoints(job.pk)
    assert (len(made), made[0].step, made[-1][1:]) == (MOST_KEPT, 29, (1019, 3.0, 1, 0.5, None))


NOW = timezone.now()


def ago(minutes: float) -> MadeCheckpoint:
    return MadeCheckpoint(NOW - timedelta(minutes=minutes), int(1000 - 10 * minutes), 60.0, 1, 0.25)


@pytest.mark.parametrize(
    ("saved", "expected"),
    [
        (Saved("last.pt", 7, NOW - timedelta(minutes=10.5)), (True, 900)),  # written during the save
        (Saved("last.pt", 7, NOW - timedelta(minutes=15)), (True, 850)),  # by no report: the curve's last step
        (Saved("last.pt", 7, NOW - timedelta(hours=1)), (True, None)),  # before any step
        (Saved("global_step0042", 7, NOW), (True, 42)),
        (Saved("resnet50.pt", 7, NOW - timedelta(minutes=10)), (True, 900)),  # 50 is no step
        (Saved("", 7, NOW), (True, 990)),  # an archive has what was saved last
    ],
)
def test_the_step_is_that_of_the_name_the_report_or_the_curve(saved: Saved, expected: tuple[bool, int | None]) -> None:
    curve = [PointOfTime(NOW - timedelta(minutes=16), 850, None, {}, None)]
    found = joined([saved], [ago(20), ago(10), ago(1)], curve)
    assert [(one.kept, one.step) for one in found if one.kept] == [expected]
    assert [one.made_at for one in found] == sorted((one.made_at for one in found), reverse=True)
    known = {one.step for one in found if not one.kept}
    assert known == {800, 900, 990} - ({expected[1]} if "step" not in saved.name else set())


def test_a_checkpoint_that_no_file_has_is_not_kept() -> None:
    at = NOW - timedelta(minutes=1)
    assert joined([], [ago(1)], []) == [Checkpoint("", False, 990, at, None, 60.0, 1, 0.25)]
