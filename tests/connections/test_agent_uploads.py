"""What agents send to the service has limits: one file at a time, and bytes packed and unpacked."""

import gzip
import os
import socket
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings

from connections_app.agents.uploads import NotGzip, UnpackedSize, UnpacksToMore, append_log, checkpoints_of, shared_slot
from connections_app.errors import TooManyUploads
from engines.protocol import Stream
from jobs_app.models import Job
from tests.played_agent import JOINING, Played, running
from tests.service_lab import Lab

SAVED = gzip.compress(b"saved")
MIB = 1 << 20


class Sender:
    """An agent with a job that runs there."""

    def __init__(self, lab: Lab, desk: Played) -> None:
        """Of all of its GPUs, so that a second job goes to another machine."""
        self.desk, self.job = desk, lab.submit("sleep 60", gpu_types=["k80"], gpus=2)
        (launch,) = desk.given().launches
        desk.sync(running(launch.attempt, lab))
        lab.running(self.job)
        self.path = f"/api/v1/agent/attempts/{launch.attempt}"

    def checkpoints(self, body: bytes, **more: Any) -> Any:
        return self.desk.client().put(f"{self.path}/checkpoints", body, content_type="application/gzip", **more)

    def log(self, body: bytes, **more: Any) -> Any:
        path = f"{self.path}/logs/stdout/0?offset=0"
        return self.desk.client().put(path, body, content_type="application/octet-stream", **more)


@pytest.fixture
def lab(lab: Lab, settings: Settings, tmp_path: Path) -> Lab:
    settings.MOTLEY_AGENT_ROOT = tmp_path / "agents"
    return lab


@pytest.fixture
def sender(lab: Lab) -> Sender:
    return Sender(lab, Played(lab))


def stored_of(job: Job) -> bytes | None:
    path = checkpoints_of(UUID(str(job.pk)))
    return path.read_bytes() if path.exists() else None


class SlowBody(BytesIO):
    """A body of a request; something else happens before its first bytes come."""

    def __init__(self, body: bytes, meanwhile: Callable[[], None]) -> None:
        super().__init__(body)
        self._meanwhile: list[Callable[[], None]] = [meanwhile]

    def read(self, size: int | None = -1, /) -> bytes:
        while self._meanwhile:
            self._meanwhile.pop()()
        return super().read(size)

    def as_body(self) -> dict[str, Any]:
        return {"wsgi.input": self, "CONTENT_LENGTH": str(len(self.getvalue()))}


def test_an_agent_sends_one_archive_at_a_time(sender: Sender) -> None:
    seen: list[Any] = []
    body = SlowBody(SAVED, lambda: seen.append(sender.checkpoints(gzip.compress(b"other"))))
    assert sender.checkpoints(b"", **body.as_body()).status_code == 200
    (second,) = seen
    assert (second.status_code, second["Retry-After"], second.json()["code"]) == (429, "5", "too_many_uploads")
    assert "sending checkpoints already" in second.json()["detail"]
    assert stored_of(sender.job) == SAVED
    assert sender.checkpoints(SAVED).status_code == 200


def test_an_agent_sends_one_log_at_a_time_beside_its_archive(sender: Sender) -> None:
    seen: list[int] = []
    log = SlowBody(b"one", lambda: seen.append(sender.log(b"two").status_code))
    archive = SlowBody(SAVED, lambda: seen.append(sender.log(b"", **log.as_body()).status_code))
    assert sender.checkpoints(b"", **archive.as_body()).status_code == 200
    assert seen == [429, 200]


def test_all_agents_together_send_a_few_archives_at_a_time(lab: Lab, sender: Sender, settings: Settings) -> None:
    settings.MOTLEY_AGENT_UPLOADS = 1
    other = Sender(lab, Played(lab, "attic", joining=replace(JOINING, token="agent_attic")))
    seen: list[Any] = []
    body = SlowBody(SAVED, lambda: seen.append(other.checkpoints(SAVED)))
    assert sender.checkpoints(b"", **body.as_body()).status_code == 200
    assert seen[0].status_code == 429
    assert "the limit" in seen[0].json()["detail"]
    assert other.checkpoints(SAVED).status_code == 200


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        (gzip.compress(bytes(2 * MIB)), 413, "bytes, unpacked"),
        (gzip.compress(bytes(MIB // 2)) * 3, 413, "bytes, unpacked"),
        (gzip.compress(os.urandom(4096)), 413, "bytes, packed"),
        (b"no archive", 400, "no gzipped archive"),
        (SAVED[:-4], 400, "no gzipped archive"),
        (SAVED[:-8] + bytes(8), 400, "no gzipped archive"),
        (gzip.compress(b"") * 1001, 400, "more than 1000 members"),
    ],
    ids=["unpacked", "in parts", "packed", "plain", "cut", "checksum", "members"],
)
def test_an_archive_above_a_limit_or_broken_is_refused_and_leaves_nothing(
    sender: Sender, settings: Settings, body: bytes, status: int, said: str
) -> None:
    most_packed = 30_000 if "members" in said else 3000
    settings.MOTLEY_AGENT_CHECKPOINT_BYTES, settings.MOTLEY_AGENT_UNPACKED_BYTES = most_packed, MIB
    sender.checkpoints(SAVED)
    answer = sender.checkpoints(body)
    assert (answer.status_code, said in answer.json()["detail"]) == (status, True), answer.json()
    folder = checkpoints_of(UUID(str(sender.job.pk))).parent
    assert [path.name for path in folder.iterdir()] == [f"{sender.job.pk}.tar.gz"]
    assert stored_of(sender.job) == SAVED


def test_what_an_upload_that_was_killed_has_left_is_written_over(sender: Sender) -> None:
    folder = checkpoints_of(UUID(str(sender.job.pk))).parent
    folder.mkdir(parents=True)
    (folder / f".agent-{sender.desk.agent.pk}").write_bytes(bytes(MIB))
    assert sender.checkpoints(SAVED).status_code == 200
    assert [path.name for path in folder.iterdir()] == [f"{sender.job.pk}.tar.gz"]


def test_a_body_that_stands_still_is_given_up(sender: Sender) -> None:
    def silence() -> None:
        raise TimeoutError

    answer = sender.checkpoints(b"", **SlowBody(SAVED, silence).as_body())
    assert (answer.status_code, "cut short" in answer.json()["detail"]) == (400, True)
    assert sender.checkpoints(SAVED).status_code == 200


def test_an_archive_that_comes_too_slowly_is_given_up(sender: Sender, monkeypatch: pytest.MonkeyPatch) -> None:
    """However short its silences are: its bytes have a least mean rate."""
    monkeypatch.setattr("web.api.agent_messages.LEAST_BYTES_PER_S", 1e9)
    monkeypatch.setattr("web.api.agent_messages.LONGEST_SILENCE_S", 0.1)
    ours, theirs = socket.socketpair()
    with ours, theirs, ours.makefile("rb", buffering=0) as body:
        answer = sender.checkpoints(
            b"", **{"wsgi.input": body, "CONTENT_LENGTH": "5", "gunicorn.socket": _NeverSilent(ours)}
        )
    assert (answer.status_code, "slower than" in answer.json()["detail"]) == (400, True)


class _NeverSilent:
    """A connection whose timeout never passes: only the whole time ends it."""

    def __init__(self, connection: socket.socket) -> None:
        self.shutdown = connection.shutdown

    def gettimeout(self) -> None:
        return None

    def settimeout(self, _: float | None) -> None:
        pass


def test_some_slots_are_kept_for_last_archives(settings: Settings, tmp_path: Path) -> None:
    settings.MOTLEY_AGENT_ROOT = tmp_path
    with ExitStack() as running:
        for _ in range(3):
            running.enter_context(shared_slot(4, is_last=False))
        with pytest.raises(TooManyUploads), shared_slot(4, is_last=False):
            pass
        with shared_slot(4, is_last=True):
            pass


def test_unpacked_bytes_are_counted_however_the_stream_is_cut() -> None:
    archive = gzip.compress(b"x" * 3000) + gzip.compress(b"y" * 1000)
    for size in (1, 7, 4096):
        counted = UnpackedSize(4000)
        for start in range(0, len(archive), size):
            counted.add(archive[start : start + size])
        counted.finish()
    with pytest.raises(UnpacksToMore):
        UnpackedSize(3999).add(archive)
    with pytest.raises(NotGzip):
        UnpackedSize(4000).add(b"plain")


def test_an_archive_takes_its_place_while_its_attempt_is_held(sender: Sender, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a process that stood still in between would store it after that of a later attempt."""
    replaced_after: list[str] = []
    replace_file = Path.replace

    def replaces(path: Path, target: Path) -> Path:
        if path.name.startswith(".agent-"):
            replaced_after.extend(query["sql"] for query in queries_so_far.captured_queries[-2:])
        return replace_file(path, target)

    monkeypatch.setattr(Path, "replace", replaces)
    with CaptureQueriesContext(connection) as queries_so_far:
        assert sender.checkpoints(SAVED).status_code == 200
    locks = "FOR UPDATE" if connection.features.has_select_for_update else "jobs_app_attempt"
    assert any(locks in sql for sql in replaced_after)


def test_a_piece_of_a_log_is_stored_before_the_next_one_may_come(
    sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []

    def stores(*args: Any, **more: Any) -> int:
        if not seen:
            seen.append(0)
            seen.append(sender.log(b"two").status_code)
        return append_log(*args, **more)

    monkeypatch.setattr("web.api.agent_messages.append_log", stores)
    assert sender.log(b"one").status_code == 200
    assert seen == [0, 429]


def test_a_log_is_stored_up_to_its_limit(settings: Settings, tmp_path: Path) -> None:
    settings.MOTLEY_AGENT_ROOT = tmp_path
    sizes = [append_log(1, Stream.STDOUT, at, b"0123456789", most=15) for at in (0, 10, 15, 15)]
    assert sizes == [10, 15, 15, 15]
    assert append_log(1, Stream.STDOUT, 15, b"x", most=5) == 15
