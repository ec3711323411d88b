"""Children of a command that runs the service end with it."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest

from operations.children import Child, Program
from tests.deployment import ROOT, wait_for

LATE_SETPRIV = """#!/bin/sh
# The parent is killed before its child has asked to be told of that.
kill -KILL $PPID
while [ "$(ps -o ppid= -p $$ | tr -d ' ')" = "$PPID" ]; do sleep 0.05; done
exec /usr/bin/setpriv "$@"
"""
PARENT = """
import django, sys, time
django.setup()
from operations.children import Child, Program
Child(Program([sys.executable, "-c", "import time; time.sleep(600)", sys.argv[1]]))
time.sleep(600)
"""


def processes_with(mark: str) -> list[int]:
    command_lines = {int(path.parent.name): path for path in Path("/proc").glob("[0-9]*/cmdline")}
    return [pid for pid, path in command_lines.items() if pid != os.getpid() and mark in _text(path)]


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


@pytest.mark.parametrize(("number", "how"), [(signal.SIGKILL, "SIGKILL"), (signal.SIGRTMIN + 6, "signal 40")])
def test_a_child_that_dies_is_named_with_what_ended_it_and_restarted(
    number: int, how: str, capfd: pytest.CaptureFixture[str]
) -> None:
    mark = f"child-{uuid4()}"
    child = Child(
        Program([sys.executable, "-c", "import time; time.sleep(600)", mark, "--skip-checks", "--only", "rounds"])
    )
    wait_for("the child runs", lambda: len(processes_with(mark)) == 1)
    child.process.send_signal(number)
    child.process.wait()
    child.restart_if_ended()
    said = capfd.readouterr().out
    child.process.kill()
    child.process.wait()
    assert f"ended by {how}, and is restarted" in said
    assert said.endswith("--only rounds\n")


@pytest.mark.parametrize("late", [False, True], ids=["at any time", "while it starts the child"])
def test_a_child_ends_with_a_parent_that_is_killed(tmp_path: Path, late: bool) -> None:
    mark = f"child-{uuid4()}"
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "config.settings", "MOTLEY_VAR": str(tmp_path / "var")}
    if late:
        (tmp_path / "setpriv").write_text(LATE_SETPRIV)
        (tmp_path / "setpriv").chmod(0o755)
        environment["PATH"] = f"{tmp_path}:{environment['PATH']}"
    parent = subprocess.Popen([sys.executable, "-c", PARENT, mark], env=environment, cwd=ROOT)
    if not late:
        wait_for("the child runs", lambda: len(processes_with(mark)) == 2)
        parent.kill()
    assert parent.wait() == -signal.SIGKILL
    wait_for("nothing is left", lambda: not processes_with(mark))
