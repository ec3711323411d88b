"""Stops, and the proof that nothing is left."""

import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from engines.protocol import Phase, StopReason, Stream
from engines.supervision.isolation import Isolation
from engines.supervision.processes import any_process_is_exiting, kill
from tests.engines.engine_lab import Lab, python, running, until

AN_HOUR = timedelta(hours=1)
CHECKPOINTING = """
import os, pathlib, signal, sys, time
def save(*_):
    time.sleep(0.2)
    reason = pathlib.Path(os.environ["MOTLEY_STOP_REASON_FILE"]).read_text()
    pathlib.Path(os.environ["MOTLEY_CHECKPOINT_DIR"], "saved").write_text(reason)
    os._exit({exit_code})
signal.signal(signal.SIGTERM, save)
print("up", flush=True)
signal.pause()
"""
STUBBORN = "trap '' TERM; echo up; while true; do sleep 0.1; done"
ESCAPING = (
    "(setsid sh -c 'trap \"\" TERM HUP; sleep 3600 & sleep 3600' & ); until [ -e {go} ]; do echo up; sleep 0.05; done"
)


def saved(lab: Lab) -> list[str]:
    return [path.read_text() for path in lab.root.glob("jobs/*/checkpoints/saved")]


@pytest.mark.parametrize("exit_code", [0, 75])
def test_a_job_that_is_stopped_may_save_its_work_and_choose_its_exit_code(lab: Lab, exit_code: int) -> None:
    attempt = lab.launch(python(CHECKPOINTING.format(exit_code=exit_code)))
    lab.wait_for_output(attempt, b"up")
    lab.engine.stop(attempt, reason=StopReason.PREEMPT, grace=AN_HOUR)
    assert lab.end_of(attempt).exit_code == exit_code
    assert saved(lab) == ["preempt"]


def test_a_program_below_a_shell_has_its_grace_when_the_shell_dies_at_once(lab: Lab, place: Path) -> None:
    script = place / "train.py"
    script.write_text(CHECKPOINTING.format(exit_code=75))
    attempt = lab.launch(f"{shlex.quote(sys.executable)} -ES {script}; echo after")
    lab.wait_for_output(attempt, b"up")
    lab.engine.stop(attempt, reason=StopReason.DRAIN, grace=AN_HOUR)
    assert lab.end_of(attempt).exit_code == 143
    assert saved(lab) == ["drain"]


@pytest.mark.every_isolation
@pytest.mark.on_slurm
def test_a_job_that_ignores_the_request_is_killed_after_its_grace(lab: Lab) -> None:
    attempt = lab.launch(STUBBORN)
    lab.wait_for_output(attempt, b"up")
    lab.engine.stop(attempt, reason=StopReason.CANCEL, grace=timedelta(seconds=0.3))
    assert lab.end_of(attempt).exit_code == 137


def test_a_shorter_grace_is_honoured(lab: Lab) -> None:
    attempt = lab.launch(STUBBORN)
    lab.wait_for_output(attempt, b"up")
    lab.engine.stop(attempt, reason=StopReason.PREEMPT, grace=AN_HOUR)
    until(lab.folder(attempt).stop_reason.exists)
    lab.engine.stop(attempt, reason=StopReason.CANCEL, grace=timedelta(0))
    assert lab.end_of(attempt).exit_code == 137


def test_a_longer_grace_comes_too_late(lab: Lab) -> None:
    attempt = lab.launch(STUBBORN)
    lab.wait_for_output(attempt, b"up")
    lab.engine.stop(attempt, reason=StopReason.PREEMPT, grace=timedelta(seconds=0.5))
    until(lab.folder(attempt).stop_reason.exists)
    lab.engine.stop(attempt, reason=StopReason.CANCEL, grace=AN_HOUR)
    assert lab.end_of(attempt).exit_code == 137


@pytest.mark.on_slurm
def test_all_ranks_are_stopped(lab: Lab) -> None:
    attempt = lab.launch("echo up; exec sleep 3600", ranks=2)
    for rank in (0, 1):
        lab.wait_for_output(attempt, b"up", rank=rank)
    lab.engine.stop(attempt, reason=StopReason.CANCEL, grace=AN_HOUR)
    assert lab.end_of(attempt).exit_code == 143


def test_a_rank_that_stops_sooner_takes_nothing_off_the_grace_of_the_others(lab: Lab) -> None:
    longer_than_after_a_failure = "trap 'sleep 6; exit 0' TERM; echo up; while true; do sleep 0.1; done"
    attempt = lab.launch(f"[ $RANK_HERE = 0 ] && echo up && exec sleep 3600; {longer_than_after_a_failure}", ranks=2)
    for rank in (0, 1):
        lab.wait_for_output(attempt, b"up", rank=rank)
    lab.engine.stop(attempt, reason=StopReason.PREEMPT, grace=AN_HOUR)
    report = lab.end_of(attempt)
    assert report.ended_at is not None
    assert report.started_at is not None
    assert report.ended_at - report.started_at > timedelta(seconds=6)


@pytest.mark.on_slurm
def test_a_stop_right_after_the_launch_is_not_lost(lab: Lab) -> None:
    attempt = lab.launch("exec sleep 3600")
    until(lambda: lab.report(attempt).phase is Phase.RUNNING)
    lab.engine.stop(attempt, reason=StopReason.CANCEL, grace=AN_HOUR)
    assert lab.end_of(attempt).exit_code == 143


@pytest.mark.on_slurm
def test_a_stop_before_the_launch_keeps_it_from_running(lab: Lab) -> None:
    launch = lab.order("echo ran")
    lab.engine.stop(launch.attempt, reason=StopReason.CANCEL, grace=AN_HOUR)
    lab.engine.launch(launch)
    report = lab.end_of(launch.attempt)
    assert (report.exit_code, report.started_at, lab.output(launch.attempt)) == (143, None, b"")


def test_a_stop_of_an_attempt_that_has_ended_changes_nothing(lab: Lab) -> None:
    attempt = lab.run("exit 3")
    lab.engine.stop(attempt, reason=StopReason.CANCEL, grace=AN_HOUR)
    assert lab.report(attempt).exit_code == 3


def escape(lab: Lab) -> int:
    """A job of which two processes have left its session and its parents, and ignore signals."""
    attempt = lab.launch(ESCAPING.format(go=lab.root / "go"))
    lab.wait_for_output(attempt, b"up")
    until(lambda: len(lab.processes(attempt)) >= 5)
    return attempt


def test_grandchildren_are_gone_when_the_job_was_stopped(lab: Lab) -> None:
    attempt = escape(lab)
    lab.engine.stop(attempt, reason=StopReason.CANCEL, grace=AN_HOUR)
    assert lab.end_of(attempt).proven_gone
    assert lab.processes(attempt) == []


def test_grandchildren_are_gone_when_the_job_has_ended(lab: Lab) -> None:
    attempt = escape(lab)
    (lab.root / "go").touch()
    assert lab.end_of(attempt).exit_code == 0
    assert lab.processes(attempt) == []


@pytest.mark.every_isolation
@pytest.mark.on_slurm
def test_grandchildren_without_the_mark_are_gone_when_the_job_has_ended(lab: Lab) -> None:
    name = f"36{os.getpid()}.{len(str(lab.isolation))}"
    lab.run(f"(env -i setsid sleep {name} &); until pgrep -f 'sleep {name}$' > /dev/null; do sleep 0.05; done")
    assert running("sleep", name) == []


@pytest.mark.every_isolation
@pytest.mark.on_slurm
def test_all_is_gone_when_the_supervisor_was_killed(lab: Lab) -> None:
    attempt = escape(lab)
    os.kill(lab.supervisor(attempt), signal.SIGKILL)
    report = lab.loss_of(attempt)
    assert (report.phase, report.exit_code, lab.processes(attempt)) == (Phase.LOST, None, [])


HEADLESS = """
import ctypes, platform, threading, time
threading.Thread(target=time.sleep, args=(3600,)).start()
print("up", flush=True)
ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[platform.machine()], 0)  # ends this thread alone
"""


def test_a_job_whose_first_thread_has_ended_is_killed_with_its_supervisor(lab: Lab) -> None:
    attempt = lab.launch(python(HEADLESS))
    lab.wait_for_output(attempt, b"up")
    assert lab.processes(attempt)
    kill(lab.supervisors())
    until(lambda: lab.report(attempt).proven_gone)
    assert lab.processes(attempt) == []


def test_another_process_whose_first_thread_has_ended_keeps_no_gpu_of_a_lost_attempt(lab: Lab) -> None:
    with subprocess.Popen(python(HEADLESS), stdout=subprocess.PIPE) as stranger:
        try:
            until(lambda: Path(f"/proc/{stranger.pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z")
            attempt = lab.launch("exec sleep 3600")
            until(lambda: lab.report(attempt).phase is Phase.RUNNING)
            kill(lab.supervisors())
            until(lambda: lab.report(attempt).proven_gone)
        finally:
            stranger.kill()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may enter a PID namespace")
def test_a_process_that_hung_in_its_exit_before_keeps_no_gpu_of_a_lost_attempt(lab: Lab) -> None:
    with hanging_in_its_exit():
        attempt = lab.launch("exec sleep 3600")
        until(lambda: lab.report(attempt).phase is Phase.RUNNING)
        kill(lab.supervisors())
        lab.loss_of(attempt)


@contextmanager
def hanging_in_its_exit() -> Iterator[None]:
    """Process 1 of a PID namespace that waits in its exit for a zombie, whose parent is outside and halted."""
    with subprocess.Popen(["unshare", "--pid", "--fork", "sleep", "3600"]) as outside:
        first = until(lambda: children_of(outside.pid))[0]
        with subprocess.Popen(["nsenter", "--target", str(first), "--pid", "sleep", "3600"]) as parent:
            until(lambda: children_of(parent.pid))
            parent.send_signal(signal.SIGSTOP)
            kill([first])
            until(lambda: any_process_is_exiting({0}))
            try:
                yield
            finally:
                kill([parent.pid, outside.pid])


def children_of(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.local_only
@pytest.mark.parametrize("left", [False, True], ids=["all", "but the folder"])
def test_a_job_whose_attempt_has_no_files_any_more_is_killed(lab: Lab, *, left: bool) -> None:
    """Its engine no longer knows it, and the service may start the job elsewhere.

    A summary of progress that is written while the files are removed keeps the folder.
    """
    attempt = lab.launch(STUBBORN)
    lab.wait_for_output(attempt, b"up")
    supervisor, processes = lab.supervisor(attempt), lab.processes(attempt)
    folder = lab.folder(attempt)
    gone = folder.path.rename(folder.path.with_name("removed"))
    if left:
        folder.path.mkdir()
        folder.progress.write_text("{}")
    shutil.rmtree(gone)
    try:
        until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in [supervisor, *processes]), seconds=30)
    finally:
        kill([supervisor, *processes])


def test_a_job_dies_with_its_supervisor_without_a_poll(lab: Lab) -> None:
    attempt = escape(lab)
    os.kill(lab.supervisor(attempt), signal.SIGKILL)
    until(lambda: lab.processes(attempt) == [])


@pytest.mark.on_slurm
def test_an_attempt_that_was_lost_is_never_begun_again(lab: Lab) -> None:
    launch = lab.order("echo up; sleep 3600")
    lab.engine.launch(launch)
    lab.wait_for_output(launch.attempt, b"up")
    os.kill(lab.supervisor(launch.attempt), signal.SIGKILL)
    lab.loss_of(launch.attempt)
    lab.engine.launch(launch)
    assert lab.report(launch.attempt).phase is Phase.LOST


def test_the_log_of_a_lost_attempt_ends(lab: Lab) -> None:
    attempt = lab.launch("echo up; sleep 3600")
    lab.wait_for_output(attempt, b"up")
    os.kill(lab.supervisor(attempt), signal.SIGKILL)
    lab.loss_of(attempt)
    assert lab.engine.logs(attempt, Stream.STDOUT, 0, 3).eof


@pytest.mark.parametrize("lab", [Isolation.SUBREAPER], indirect=True)
def test_a_job_that_kills_its_first_process_ends_all_the_same(lab: Lab) -> None:
    attempt = lab.launch("kill -KILL $PPID; sleep 3600")
    report = lab.end_of(attempt)
    assert (report.exit_code, lab.processes(attempt)) == (137, [])


@pytest.mark.parametrize("lab", [Isolation.SUBREAPER], indirect=True)
def test_a_job_that_halts_its_first_process_is_stopped_all_the_same(lab: Lab) -> None:
    attempt = lab.launch("kill -STOP $PPID; echo up; sleep 3600")
    lab.wait_for_output(attempt, b"up")
    lab.engine.stop(attempt, reason=StopReason.CANCEL, grace=timedelta(0))
    assert lab.end_of(attempt).exit_code == 137
