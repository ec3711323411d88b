"""Children of a command that runs the service: what they keep of it, and that they end with it."""

import fcntl
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from uuid import uuid4

import pytest

from operations.children import Child, Program, executing
from tests.deployment import ROOT, others, told, wait_for

SLEEPS = [sys.executable, "-c", "import time; time.sleep(600)"]
PARENT = """
import django, os, signal, sys, time
django.setup()
from operations.children import Child, Program, executing

def parent_dies_first():
    before = os.getppid()
    os.kill(before, signal.SIGKILL)
    while os.getppid() == before:
        time.sleep(0.05)

if sys.argv[2] == "late":
    os.register_at_fork(after_in_child=parent_dies_first)
Child(Program("test", executing([sys.executable, "-c", "import time; time.sleep(600)", sys.argv[1]])))
time.sleep(600)
"""
IGNORES_SIGCHLD = """
import django, pathlib, signal, sys, threading, time
django.setup()
from operations.children import Program, hear_signals, run_until_told

starts = pathlib.Path(sys.argv[1])
starts.touch()

def note_start():
    with starts.open("a") as file:
        file.write("x")

def stop_after_two():
    while len(starts.read_text()) < 2:
        time.sleep(0.05)
    told.set()

signal.signal(signal.SIGCHLD, signal.SIG_IGN)
told = hear_signals()
threading.Thread(target=stop_after_two).start()
run_until_told([Program("test", note_start)], told)
"""


def processes_with(mark: str) -> list[int]:
    return [pid for pid in others() if mark.encode() in told(pid, "cmdline")]


def ended(program: Program) -> int:
    """The exit code of a child, as of `subprocess.Popen`."""
    child = Child(program)
    wait_for("the child ends", lambda: child.poll() is not None)
    assert child.code is not None
    return child.code


@pytest.mark.parametrize(("number", "how"), [(signal.SIGKILL, "SIGKILL"), (signal.SIGRTMIN + 6, "signal 40")])
def test_a_child_that_dies_is_named_with_what_ended_it_and_restarted(
    number: int, how: str, capfd: pytest.CaptureFixture[str]
) -> None:
    child = Child(Program("rounds", executing([*SLEEPS, str(uuid4())])))
    first = child.pid
    child.signal(number)
    wait_for("it has ended", lambda: child.poll() is not None)
    child.restart_if_ended()
    said = capfd.readouterr().out
    assert (child.poll(), child.pid != first) == (None, True)
    child.signal(signal.SIGKILL)
    child.end()
    assert said == f"A process of the service ended by {how}, and is restarted: rounds\n"


def test_a_child_whose_parent_was_started_with_sigchld_ignored_is_restarted(tmp_path: Path) -> None:
    """As some shells and cron leave it: no exit code is kept then."""
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "config.settings", "MOTLEY_VAR": str(tmp_path / "var")}
    command = [sys.executable, "-c", IGNORES_SIGCHLD, str(tmp_path / "starts")]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "ended with 0, and is restarted: test" in done.stdout


def test_what_the_parent_has_buffered_is_written_once(tmp_path: Path) -> None:
    code = (
        "import django, time; django.setup()\n"
        "from operations.children import Child, Program\n"
        "print('Motley is at')\n"
        "child = Child(Program('test', lambda: None))\n"
        "while child.poll() is None: time.sleep(0.05)\n"
    )
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "config.settings", "MOTLEY_VAR": str(tmp_path / "var")}
    environment.pop("PYTHONUNBUFFERED", None)
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "Motley is at\n"


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_child_with_closed_streams_ends_and_unwinds_nothing_of_its_parent(
    stream: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = (tmp_path / "closed").open("w")
    closed.close()
    try:
        with monkeypatch.context() as patch:
            patch.setattr(sys, stream, closed)
            assert ended(Program("test", partial(sys.exit, 3))) == 3
    finally:
        (tmp_path / str(os.getpid())).touch()
    assert [path.name for path in tmp_path.iterdir() if path.name != "closed"] == [str(os.getpid())]


@pytest.mark.parametrize("when", ["at any time", "late"])
def test_a_child_ends_with_a_parent_that_is_killed(tmp_path: Path, when: str) -> None:
    """Late: before the child has asked to be told of that."""
    mark = f"child-{uuid4()}"
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "config.settings", "MOTLEY_VAR": str(tmp_path / "var")}
    parent = subprocess.Popen([sys.executable, "-c", PARENT, mark, when], env=environment, cwd=ROOT)
    if when != "late":
        wait_for("the child runs", lambda: len(processes_with(mark)) == 2)
        parent.kill()
    assert parent.wait() == -signal.SIGKILL
    wait_for("nothing is left", lambda: not processes_with(mark))


def test_a_child_keeps_no_file_of_its_parent_but_those_that_it_is_given(tmp_path: Path) -> None:
    """Or the lock of a service that was killed would be held by what is left of it."""
    with (tmp_path / "lock").open("w") as lock, (tmp_path / "given").open("w") as given:
        fcntl.flock(lock, fcntl.LOCK_EX)
        program = partial(_says_what_is_open, given.fileno())
        assert ended(Program("test", program, [given.fileno()])) == 0
    assert (tmp_path / "given").read_text() == "given"


def _says_what_is_open(descriptor: int) -> None:
    """Names of the regular files that are open, but for standard input, output and error."""
    paths = [path for path in Path("/proc/self/fd").iterdir() if path.is_file() and int(path.name) > 2]
    os.write(descriptor, " ".join(path.resolve().name for path in paths).encode())


@pytest.mark.parametrize(("how", "code"), [("return", 0), ("exit(3)", 3), ("exit('why')", 1), ("1/0", 1)])
def test_the_exit_code_is_that_of_a_program(how: str, code: int, capfd: pytest.CaptureFixture[str]) -> None:
    programs = {
        "return": lambda: None,
        "exit(3)": partial(sys.exit, 3),
        "exit('why')": partial(sys.exit, "why"),
        "1/0": lambda: 1 / 0,
    }
    assert ended(Program("test", programs[how], [sys.stderr.fileno()])) == code
    said = capfd.readouterr().err
    assert ("why" in said, "ZeroDivisionError" in said) == (how == "exit('why')", how == "1/0")
