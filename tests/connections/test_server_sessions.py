"""Sessions in ranks on servers: the sockets at which clients wait, and keys of agents."""

import os
import socket
import threading
from datetime import timedelta
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from django.utils import timezone
from pytest_django import Settings

from connections_app.agents import sessions
from connections_app.agents.engine import AgentEngine
from connections_app.agents.job_folders import kept_rows_asked_for
from connections_app.agents.sessions import listening_command, new_socket, orders_of, session_of
from connections_app.agents.uploads import checkpoints_of, make_folder
from connections_app.models import AgentAttempt
from engines.protocol import EngineError, NoSuchFile
from engines.sessions.meeting import joined, listened
from tests.connections.test_gang_rows import server
from tests.deployment import wait_for


@pytest.fixture
def folder(settings: Settings, tmp_path: Path) -> Path:
    settings.MOTLEY_AGENT_ROOT = tmp_path / "agents"
    return tmp_path / "agents" / "sessions"


@pytest.mark.django_db
def test_the_socket_of_a_listener_that_was_killed_is_removed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row = AgentAttempt.objects.create(agent=server("gpu1"), attempt=7, job=UUID(int=0))
    path = Path(listening_command(7, 0).argv[-1])
    path.touch()
    assert [(one.attempt, path.name.endswith(one.key)) for one in orders_of([row])] == [(7, True)]
    (folder / ".beside").touch()
    monkeypatch.setattr(sessions, "LEFT_AFTER_S", -1.0)
    assert orders_of([row]) == []
    assert [*folder.iterdir()] == []


@pytest.mark.django_db
def test_what_was_saved_is_read_when_the_server_has_forgotten_the_job(folder: Path) -> None:
    job = uuid4()
    AgentAttempt.objects.create(agent=server("gpu1"), attempt=7, job=job, forgotten=True)
    engine = AgentEngine("servers")
    assert engine.list_files(str(job), "") == []
    checkpoints_of(job).parent.mkdir(parents=True)
    checkpoints_of(job).write_bytes(b"packed")
    (listed,) = engine.list_files(str(job), "")
    assert (listed.name, listed.size, listed.is_file) == ("checkpoints.tar.gz", 6, True)
    with os.fdopen(engine.open_file(str(job), listed.name).descriptor, "rb") as file:
        assert file.read() == b"packed"
    with pytest.raises(NoSuchFile):
        engine.list_files(str(job), "work")


@pytest.mark.django_db
def test_files_of_a_job_that_ended_are_asked_of_the_server_that_keeps_them(folder: Path) -> None:
    """A session is not: nothing runs there any more."""
    agent, job, now = server("gpu1"), uuid4(), timezone.now()
    AgentAttempt.objects.create(agent=agent, attempt=7, job=job, forgotten=True, kept=True, delivered_at=now)
    for attempt, of_files in ((7, True), (7, False), (8, True)):
        make_folder(folder)
        new_socket(attempt, 0, of_files=of_files).touch()
    orders = orders_of([], kept_rows_asked_for(agent))
    assert [(one.attempt, one.of_files) for one in orders] == [(7, True)]
    found = session_of(agent, orders[0].key)
    assert found is not None
    assert found.check(in_use=True)
    keys = [path.name.split(".")[2] for path in folder.iterdir() if path.name != Path(found.command.argv[-1]).name]
    assert [session_of(agent, key) for key in keys] == [None, None]


@pytest.mark.django_db
def test_files_on_a_server_that_is_not_heard_are_not_waited_for(folder: Path) -> None:
    job, now = uuid4(), timezone.now()
    silent = server("long-silent", heard_at=now - timedelta(hours=1))
    AgentAttempt.objects.create(agent=silent, attempt=7, job=job, delivered_at=now)
    with pytest.raises(EngineError, match="The server long-silent is not heard"):
        AgentEngine("servers").list_files(str(job), "")
    checkpoints_of(job).parent.mkdir(parents=True)
    checkpoints_of(job).write_bytes(b"packed")
    assert [one.name for one in AgentEngine("servers").list_files(str(job), "")] == ["checkpoints.tar.gz"]


@pytest.mark.django_db
@pytest.mark.parametrize("key", ["\u00e4" * 32, "", "../" * 10])
def test_what_is_no_key_names_no_session(folder: Path, key: str) -> None:
    Path(listening_command(7, 0).argv[-1]).touch()
    assert session_of(server("gpu1"), key) is None


def test_the_ends_meet_in_a_folder_with_a_long_path(tmp_path: Path) -> None:
    """The address of a socket has 107 bytes at most."""
    path = tmp_path / ("long" * 30) / f"7.0.{'a' * 32}"
    path.parent.mkdir()
    ends: list[socket.socket] = []
    thread = threading.Thread(target=lambda: ends.append(listened(path)))
    thread.start()
    wait_for("it listens", path.exists)
    with joined(path) as end:
        thread.join()
        ends[0].sendall(b"here")
        assert end.recv(10) == b"here"
    ends[0].close()
    assert not path.exists()
