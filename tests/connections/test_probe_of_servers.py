"""Test of several servers: its files on storage to which jobs write, too."""

import os
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from pytest_django import Settings

from cluster_app.models import Engine, Storage
from connections_app import probe as probe_module
from connections_app.models import EngineProbe
from connections_app.probe import advance_probes, ask_for_probe
from tests.played_agent import JOINING, Played
from tests.service_lab import Lab

NAMES = ("gpu1", "gpu2")
NETWORK = f"127.{os.getpid() >> 8 & 255}.{os.getpid() & 255}"
"""Each worker has its own: the port is fixed, and a test would connect to the servers of another worker."""


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """Storage of all."""
    folder = tmp_path / "shared"
    folder.mkdir()
    return folder


@pytest.fixture
def servers(lab: Lab, settings: Settings, tmp_path: Path, shared: Path) -> Sequence[Played]:
    settings.MOTLEY_AGENT_ROOT = tmp_path / "agents"
    found = [
        Played(lab, name, joining=replace(JOINING, token=f"agent_{name}", gangs=True), site=True) for name in NAMES
    ]
    for number, server in enumerate(found, 1):
        server.address = f"{NETWORK}.{number}"
        server.sync()
    lab.tick()
    Storage.objects.create(name="data", engine=Engine.objects.get(name="servers"), path=str(shared))
    return found


def begun(lab: Lab) -> EngineProbe:
    probe = ask_for_probe(Engine.objects.get(name="servers"), actor=None)
    advance_probes(lab.now)
    probe.refresh_from_db()
    assert list(probe.nodes) == list(NAMES), probe.message
    return probe


def command_of(server: Played) -> str:
    (launch,) = server.sync().launches
    assert isinstance(launch.command, str)
    return launch.command


def test_the_service_makes_no_file_through_a_link_of_a_job(lab: Lab, servers: Sequence[Played], shared: Path) -> None:
    """Neither by a name that follows from the earlier ones, nor by one that is known."""
    before = begun(lab)
    (token,) = shared.iterdir()
    assert token.name.endswith("-token-service")
    target = shared.parent / "not-to-be-made"
    guessed = shared / token.name.replace(str(before.pk), str(before.pk + 1))
    for name in {guessed, token}:
        name.unlink(missing_ok=True)
        name.symlink_to(target)
    EngineProbe.objects.filter(pk=before.pk).update(launched_at=None)  # as after a launch that was lost
    advance_probes(lab.now)
    ask_for_probe(Engine.objects.get(name="servers"), actor=None)
    advance_probes(lab.now)
    assert not target.exists()


def test_the_account_of_jobs_empties_no_file_through_a_link(
    lab: Lab, servers: Sequence[Played], shared: Path, tmp_path: Path
) -> None:
    probe = begun(lab)
    (token,) = shared.iterdir()
    kept = tmp_path / "kept"
    kept.write_text("a checkpoint")
    for word in ("token", "read"):
        (shared / token.name.replace("token-service", f"{word}-0")).symlink_to(kept)
    running = [started(rank, server, tmp_path) for rank, server in enumerate(servers)]
    said = [one.communicate()[0] for one in running]
    assert [one.returncode for one in running] == [0, 0]
    assert all("reaches all other servers" in text for text in said)
    assert all("storage data is shared by all servers" in text for text in said)
    assert all("storage data is seen by the service" in text for text in said)
    assert kept.read_text() == "a checkpoint"
    assert [one.name for one in shared.iterdir()] == [token.name]
    assert probe.ended_at is None


def started(rank: int, server: Played, folder: Path) -> "subprocess.Popen[str]":
    """The rank of the test on this server."""
    own = folder / server.name
    own.mkdir()
    variables = os.environ | {"MOTLEY_NODE_RANK": str(rank), "MOTLEY_CHECKPOINT_DIR": str(own)}
    command = ["/bin/sh", "-c", command_of(server)]
    return subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_server_that_another_does_not_reach_is_named(
    lab: Lab, servers: Sequence[Played], shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by a firewall between them: a gang would wait there until its time limit."""
    monkeypatch.setattr(probe_module, "REACHED_WITHIN_S", 0.3)
    monkeypatch.setattr(probe_module, "SEEN_WITHIN_S", 0.1)
    begun(lab)
    alone = started(0, servers[0], tmp_path)
    said, errors = alone.communicate()
    assert alone.returncode == 1
    assert f"does not reach gpu2 ({NETWORK}.2)" in said
    assert (
        f"Not reached at TCP port 49599: gpu2 ({NETWORK}.2). Open the ports of trainings between the servers" in errors
    )
