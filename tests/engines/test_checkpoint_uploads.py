"""Checkpoints of a running job go to the service now and then: finished files, and never an older archive last."""

import errno
import os
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from datetime import timedelta
from math import inf
from pathlib import Path
from typing import Any

import pytest

from engines.agent.checkpoint_snapshot import NotPacked, Stamp, drop_changed, pack, stamps_of, take_snapshot
from engines.agent.checkpoint_uploads import CheckpointUploads, UploadRate
from engines.agent.connection import Connection, Refused, Unheard
from engines.agent.sent_files import SentFiles
from engines.attempt_files import AttemptFolder, write_json
from engines.local.engine import LocalEngine
from engines.protocol import Launch, NodeLaunch, Phase, StopReason
from tests.engines.engine_lab import until

JOB = "0190c3f0-0000-7000-8000-00000000000b"
OTHER_JOB = "0190c3f0-0000-7000-8000-00000000000c"
AT_ONCE = UploadRate(pause_s=0.0, busy_part=inf, settling_s=0.0)
Content = dict[str, str]


class Received(Connection):
    """The service: it keeps what it was sent last, and says what the test wants."""

    def __init__(self) -> None:
        super().__init__("http://127.0.0.1:9", "agent_secret")
        self.archives: list[Content] = []
        self.meanwhile: Callable[[], None] = lambda: None

    def send_checkpoints(self, attempt: int, archive: Path, *, may_go_on: Callable[[], bool] = lambda: True) -> None:
        self.meanwhile()
        if not may_go_on():
            raise Unheard("the last archive goes first")
        with tarfile.open(archive) as packed:
            files = {member.name.removeprefix("./"): packed.extractfile(member) for member in packed}
            self.archives.append({name: file.read().decode() for name, file in files.items() if file})


class Desk:
    """A machine whose one job runs until it is let go; the test saves its checkpoints."""

    def __init__(self, folder: Path) -> None:
        self.engine, self.service = LocalEngine(folder / "engine", declared=["n1"]), Received()
        self.uploads = CheckpointUploads(folder, self.service, self.engine, AT_ONCE)
        command = 'while [ ! -e "$MOTLEY_CHECKPOINT_DIR/../work/go" ]; do sleep 0.02; done'
        self.engine.launch(Launch(1, JOB, command, [NodeLaunch("n1", {})], grace=timedelta(0)))
        until(lambda: self.engine.poll([1])[0].phase is Phase.RUNNING)
        self.checkpoints = folder / "engine" / "jobs" / JOB / "checkpoints"
        self.attempt = AttemptFolder(folder / "engine" / "attempts" / "1")

    def save(self, name: str, text: str) -> None:
        """As `motley_client.training` does: beside the file, then in its place."""
        beside = self.checkpoints / f".{name}.1.partial"
        beside.parent.mkdir(exist_ok=True)
        beside.write_text(text)
        beside.replace(self.checkpoints / name)

    def end(self) -> None:
        self.engine.stop(1, reason=StopReason.CANCEL, grace=timedelta(0))
        until(lambda: self.engine.poll([1])[0].phase is Phase.ENDED)
        until(lambda: not self.attempt.is_supervised())  # or its last writes meet the removal of the folder


@pytest.fixture
def desk(place: Path) -> Iterator[Desk]:
    one = Desk(place)
    yield one
    one.end()


def test_what_a_running_job_has_saved_is_sent_once(desk: Desk) -> None:
    desk.uploads.turn()
    assert desk.service.archives == []
    desk.save("step", "5")
    for _ in range(3):
        desk.uploads.turn()
    desk.save("step", "6")
    desk.uploads.turn()
    assert desk.service.archives == [{"step": "5"}, {"step": "6"}]


def test_between_two_archives_of_a_job_there_is_a_pause(desk: Desk, place: Path) -> None:
    uploads = CheckpointUploads(place, desk.service, desk.engine, AT_ONCE._replace(pause_s=3600.0))
    desk.save("step", "5")
    uploads.turn()
    uploads.turn()
    assert desk.service.archives == []


def test_uploads_take_a_part_of_the_time_of_the_machine(desk: Desk, place: Path) -> None:
    """Whatever the number of its jobs, and also those that fail."""
    tried: list[int] = []

    def fails() -> None:
        tried.append(1)
        raise Unheard("no answer")

    uploads = CheckpointUploads(place, desk.service, desk.engine, AT_ONCE._replace(busy_part=1e-9))
    desk.engine.launch(Launch(2, OTHER_JOB, "sleep 60", [NodeLaunch("n1", {})], grace=timedelta(0)))
    until(lambda: desk.engine.poll([2])[0].phase is Phase.RUNNING)
    desk.save("step", "5")
    other = desk.checkpoints.parents[1] / OTHER_JOB / "checkpoints"
    (other / "step").write_text("5")
    desk.service.meanwhile = fails
    uploads.turn()
    uploads.turn()
    desk.engine.stop(2, reason=StopReason.CANCEL, grace=timedelta(0))
    until(lambda: desk.engine.poll([2])[0].phase is Phase.ENDED)
    assert tried == [1]


def test_unfinished_files_stay_on_the_machine(desk: Desk) -> None:
    desk.save("step", "5")
    (desk.checkpoints / ".step.1.partial").write_text("half")
    (desk.checkpoints / "epoch.tmp").mkdir()
    (desk.checkpoints / "epoch.tmp" / "weights").write_text("half")
    desk.uploads.turn()
    assert desk.service.archives == [{"step": "5"}]


def test_the_last_archive_comes_after_all_others(desk: Desk) -> None:
    """One of the running job that is on its way gives way; none is sent before or after the last one."""
    refused: list[str] = []

    def ends_meanwhile() -> None:
        desk.service.meanwhile = lambda: None
        desk.save("step", "6")
        desk.end()
        with pytest.raises(Unheard) as error:
            desk.uploads.send_last(1)
        refused.append(str(error.value))

    desk.save("step", "5")
    desk.service.meanwhile = ends_meanwhile
    desk.uploads.turn()
    desk.uploads.turn()
    assert desk.service.archives == []
    desk.uploads.send_last(1)
    desk.uploads.turn()
    assert refused == ["checkpoints of a running job are being sent"]
    assert desk.service.archives == [{"step": "6"}]


def test_the_last_archive_is_not_sent_again_where_nothing_is_new(desk: Desk) -> None:
    desk.save("step", "5")
    desk.uploads.turn()
    desk.end()
    desk.uploads.send_last(1)
    assert desk.service.archives == [{"step": "5"}]


@pytest.mark.parametrize("error", [Unheard("no answer"), Refused("the attempt has ended", status=409)])
def test_an_upload_that_fails_stops_nothing_and_waits_for_a_while(desk: Desk, error: Exception) -> None:
    tried: list[int] = []

    def fails() -> None:
        tried.append(1)
        raise error

    desk.save("step", "5")
    desk.service.meanwhile = fails
    desk.uploads.turn()
    desk.uploads.turn()
    assert (len(tried), desk.service.archives) == (1, [])
    assert not any((desk.checkpoints.parents[3] / "outgoing").iterdir())


def test_a_file_that_is_written_in_place_is_sent_when_it_is_finished(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service keeps the archive that has it; one without it would lose what the job has saved."""
    text = "6"

    def goes_on(_: float) -> None:
        nonlocal text
        text += " and more"
        (desk.checkpoints / "last").write_text(text)

    (desk.checkpoints / "last").write_text("5")
    desk.uploads.turn()
    monkeypatch.setattr("engines.agent.checkpoint_uploads.sleep", goes_on)
    desk.save("other", "6")
    desk.uploads.turn()
    assert desk.service.archives == [{"last": "5"}]
    monkeypatch.setattr("engines.agent.checkpoint_uploads.sleep", lambda _: None)
    desk.uploads.turn()
    assert desk.service.archives[1:] == [{"last": text, "other": "6"}]


def test_a_file_that_changes_all_the_time_keeps_no_other_back(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    def goes_on(_: float) -> None:
        with (desk.checkpoints / "events").open("a") as file:
            file.write("one more\n")

    goes_on(0.0)
    monkeypatch.setattr("engines.agent.checkpoint_uploads.sleep", goes_on)
    for step in ("5", "6"):
        desk.save("step", step)
        desk.uploads.turn()
    assert desk.service.archives == [{"step": "5"}, {"step": "6"}]


def resumed(desk: Desk) -> None:
    """The job's launch says that it was restored from an archive."""
    folder = AttemptFolder(desk.checkpoints.parents[2] / "attempts" / "1")
    write_json(folder.launch, {**(folder.read_launch() or {}), "checkpoints": {}})


def test_a_resumed_job_that_writes_in_place_keeps_the_archive_that_it_came_from(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def goes_on(_: float) -> None:
        (desk.checkpoints / "weights").write_text("6 and more")

    resumed(desk)
    desk.save("metrics", "6")
    (desk.checkpoints / "weights").write_text("6")
    monkeypatch.setattr("engines.agent.checkpoint_uploads.sleep", goes_on)
    desk.uploads.turn()
    assert desk.service.archives == []
    monkeypatch.setattr("engines.agent.checkpoint_uploads.sleep", lambda _: None)
    desk.uploads.turn()
    assert desk.service.archives == [{"metrics": "6", "weights": "6 and more"}]


def test_a_checkpoint_that_is_removed_for_one_that_is_being_written_stays_at_the_service(
    desk: Desk, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also by an agent that was started again in between."""

    def goes_on(_: float) -> None:
        with (desk.checkpoints / "step-2").open("a") as file:
            file.write("one more")

    desk.save("metrics", "5")
    desk.save("step-1", "5")
    desk.uploads.turn()
    (desk.checkpoints / "step-1").unlink()
    goes_on(0.0)
    monkeypatch.setattr("engines.agent.checkpoint_uploads.sleep", goes_on)
    for uploads in (desk.uploads, CheckpointUploads(place, desk.service, desk.engine, AT_ONCE)):
        uploads.turn()
    assert desk.service.archives == [{"metrics": "5", "step-1": "5"}]


def test_an_archive_whose_answer_was_lost_may_be_at_the_service(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    write_json(AttemptFolder(tmp_path / "1").launch, {"ranks": []})
    sent, stamp = SentFiles(tmp_path), Stamp(1, 2, 3)
    assert sent.names(1) == frozenset()
    sent.finish(1, {"step-1": stamp})
    sent.begin(1, {"step-2"})
    assert (sent.stamps(1), sent.names(1)) == (None, {"step-1", "step-2"})
    assert SentFiles(tmp_path).names(1) == {"step-1", "step-2"}


def test_the_last_archive_has_what_is_unfinished(desk: Desk) -> None:
    desk.save("step", "5")
    desk.uploads.turn()
    (desk.checkpoints / "x.tmp").write_text("half")
    desk.end()
    for _ in range(2):
        desk.uploads.send_last(1)
    assert desk.service.archives == [{"step": "5"}, {"step": "5", "x.tmp": "half"}]


@pytest.mark.parametrize("with_folder", [True, False])
def test_where_a_job_has_removed_its_checkpoints_the_service_keeps_none(desk: Desk, *, with_folder: bool) -> None:
    desk.save("step", "5")
    desk.uploads.turn()
    (desk.checkpoints / "step").unlink()
    desk.end()
    if not with_folder:
        desk.checkpoints.rmdir()
    for _ in range(2):
        desk.uploads.send_last(1)
    assert desk.service.archives == [{"step": "5"}, {}]


def test_a_snapshot_keeps_what_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "from" / "epoch").mkdir(parents=True)
    (tmp_path / "from" / "epoch" / "weights").write_text("old")
    stamps = take_snapshot(tmp_path / "from", tmp_path / "to")
    (tmp_path / "new").write_text("new")
    (tmp_path / "new").replace(tmp_path / "from" / "epoch" / "weights")
    assert drop_changed(tmp_path / "to", stamps) == stamps == stamps_of(tmp_path / "to")
    assert (tmp_path / "to" / "epoch" / "weights").read_text() == "old"


def test_a_file_that_the_job_replaces_while_it_is_packed_is_packed_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GNU tar sees the count of the file's names change."""
    (tmp_path / "from").mkdir()
    (tmp_path / "from" / "weights").write_bytes(bytes(64 << 20))
    stamps = take_snapshot(tmp_path / "from", tmp_path / "to")
    run = subprocess.run

    def replaces_meanwhile(argv: list[str], **more: Any) -> Any:
        """Tar waits for the compressor to read, which replaces the file first."""
        program = tmp_path / "compress"
        program.write_text(f"#!/bin/sh\nrm {tmp_path}/from/weights\nexec gzip -1\n")
        program.chmod(0o755)
        return run([word.replace("gzip -1", str(program)) for word in map(str, argv)], **more)

    monkeypatch.setattr(subprocess, "run", replaces_meanwhile)
    pack(tmp_path / "to", tmp_path / "archive")
    assert stamps_of(tmp_path / "to") == stamps
    with tarfile.open(tmp_path / "archive") as packed:
        assert packed.getmember("./weights").size == 64 << 20


@pytest.mark.parametrize("error", [errno.EXDEV, errno.EPERM])
def test_where_no_links_can_be_made_it_is_said_once(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: int
) -> None:
    def refuses(*_: object, **__: object) -> None:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(os, "link", refuses)
    monkeypatch.setattr("engines.agent.checkpoint_uploads.TOO_LARGE_PAUSE_S", 0.0)
    desk.save("step", "5")
    for _ in range(3):
        desk.uploads.turn()
    (said,) = [record.getMessage() for record in caplog.records]
    assert "are sent when it ends: no hard link to step can be made" in said
    desk.end()
    desk.uploads.send_last(1)
    assert desk.service.archives == [{"step": "5"}]


def test_an_archive_that_cannot_be_made_says_why(tmp_path: Path) -> None:
    with pytest.raises(NotPacked, match="no folder"):
        pack(tmp_path / "no folder", tmp_path / "archive")


def test_a_snapshot_holds_links_as_links(tmp_path: Path) -> None:
    """The job's account could name any file of the machine by one."""
    (tmp_path / "from").mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "key").write_text("of the machine")
    for name, target in {"folder": "../outside", "file": "../outside/key"}.items():
        (tmp_path / "from" / name).symlink_to(target)
    assert take_snapshot(tmp_path / "from", tmp_path / "to").keys() == {"folder", "file"}
    assert [path.is_symlink() for path in (tmp_path / "to").iterdir()] == [True, True]


def test_a_folder_that_is_replaced_by_a_link_is_not_entered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the look at its name and the opening of it."""
    (tmp_path / "from" / "epoch").mkdir(parents=True)
    (tmp_path / "from" / "epoch" / "weights").write_text("5")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "key").write_text("of the machine")
    opened = os.open

    def swaps_first(path: str, *args: int, **more: int | None) -> int:
        if path == "epoch" and (tmp_path / "from" / "epoch").is_dir() and not (tmp_path / "aside").exists():
            (tmp_path / "from" / "epoch").rename(tmp_path / "aside")
            (tmp_path / "from" / "epoch").symlink_to(tmp_path / "outside")
        return opened(path, *args, **more)

    monkeypatch.setattr(os, "open", swaps_first)
    assert take_snapshot(tmp_path / "from", tmp_path / "to") == {}
    assert not (tmp_path / "to" / "epoch" / "key").exists()
