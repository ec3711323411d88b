"""Installation of a server's agent where there is systemd, whose command is a script of the test."""

import os
from pathlib import Path
from zipfile import ZipFile

import pytest

from engines.agent import install
from tests.engines.test_server_checks import FACTS
from tests.stack.systemd_units import faults_in

URL = "https://motley.example.org"


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A server that has joined, with systemd; `asked` has what this was told, `fails` the word at which it fails."""
    script = f"""#!/bin/sh
echo "$*" >> {tmp_path}/asked
[ "$1" != "$(cat {tmp_path}/fails)" ]
"""
    (tmp_path / "systemctl").write_text(script)
    (tmp_path / "systemctl").chmod(0o755)
    (tmp_path / "fails").write_text("")
    with ZipFile(tmp_path / "agent.pyz", "w") as program:
        program.writestr("engines/new.py", "")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(install, "SYSTEMD", tmp_path)
    monkeypatch.setattr(install, "UNIT", tmp_path / "motley-agent.service")
    monkeypatch.setattr(install, "facts_of", lambda _: FACTS._replace(joined_url=URL))
    monkeypatch.setattr("sys.argv", [str(tmp_path / "agent.pyz")])
    monkeypatch.setattr("os.geteuid", lambda: 0)
    return tmp_path


def run_the_line(host: Path, state: str = "state") -> int:
    return install.main(["--url", URL, "--state", str(host / state), "--prefix", str(host / "program")])


def test_the_line_updates_the_agent_of_a_server_that_has_joined(host: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_the_line(host) == 0
    assert (host / "program" / "current" / "engines" / "new.py").exists()
    words = (host / "asked").read_text().splitlines()
    assert words == ["daemon-reload", "enable motley-agent.service", "restart motley-agent.service"]
    assert "The agent is updated." in capsys.readouterr().out


def test_a_start_that_failed_is_repeated_by_the_same_line(host: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (host / "fails").write_text("restart")
    assert run_the_line(host) == install.FAILED
    assert "its agent could not be started" in capsys.readouterr().err
    (host / "fails").write_text("")
    assert run_the_line(host) == 0


def test_an_agent_that_left_or_was_refused_is_not_started_again(host: Path) -> None:
    """It ends with 0 and with 3; all others ends are failures."""
    assert run_the_line(host) == 0
    unit = (host / "motley-agent.service").read_text().splitlines()
    assert {"Restart=on-failure", "RestartPreventExitStatus=3"} <= {*unit}


def test_systemd_understands_the_unit_whatever_folders_are_named(host: Path) -> None:
    """`%s` is a shell there, and `$it` a variable."""
    assert run_the_line(host, "100%s of $it") == 0
    assert faults_in(host / "motley-agent.service") == ""
    assert "'100%%s of $$it'" in (host / "motley-agent.service").read_text().replace(f"'{host}/", "'")


def test_jobs_of_a_server_may_have_many_processes_and_keep_memory_for_the_network(host: Path) -> None:
    """Jobs have the agent's limits: by those of systemd InfiniBand gets 8 MiB of memory, and NCCL fails."""
    assert run_the_line(host) == 0
    unit = (host / "motley-agent.service").read_text().splitlines()
    assert {"TasksMax=infinity", "LimitMEMLOCK=infinity"} <= {*unit}
