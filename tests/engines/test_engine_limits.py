"""What one job takes, others keep: memory beyond what it asked for, and processes without end."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from engines.protocol import NodeLaunch
from tests.engines.engine_lab import Lab, python, until

HOLD = "import time; block = bytearray({mib} << 20); print('holds it', flush=True); time.sleep(600)"
FORK_BOMB = """
import os, sys
made = 0
while made < 400:
    try:
        child = os.fork()
    except BlockingIOError:
        print("refused after", made, flush=True)
        break
    if child == 0:
        import time
        time.sleep(600)
    made += 1
sys.exit(0 if made < 400 else 1)
"""
SHARED = """
import mmap, os, time
block = mmap.mmap(-1, 96 << 20)
block.write(b"x" * (96 << 20))
for _ in range(4):
    if os.fork() == 0:
        sum(block[position] for position in range(0, len(block), 4096))
        time.sleep(600)
time.sleep(3)
print("done", flush=True)
os._exit(0)
"""


def tasks(memory_mib: int) -> list[NodeLaunch]:
    return [NodeLaunch("n1", {}, memory_mib=memory_mib)]


def test_a_job_that_uses_more_memory_than_it_asked_for_is_ended_with_both_figures(lab: Lab) -> None:
    other = lab.launch(python(HOLD.format(mib=300)))
    lab.wait_for_output(other, b"holds it")
    attempt = lab.run(python(HOLD.format(mib=300)), tasks=tasks(200), limits_memory=True)
    report = lab.end_of(attempt)
    assert report.exit_code == 137
    assert "of memory on n1 and had asked for 0.2 GiB: ask for more by `memory_per_gpu`" in report.message
    assert lab.processes(attempt) == []
    assert lab.report(other).phase == "running"


def test_processes_in_other_sessions_count_too(lab: Lab) -> None:
    child = f"import os; os.setsid(); {HOLD.format(mib=150)}"
    script = f"import subprocess, sys; [subprocess.Popen([sys.executable, '-ESc', {child!r}]) for _ in range(2)]"
    attempt = lab.run(python(f"{script}; import time; time.sleep(600)"), tasks=tasks(200), limits_memory=True)
    assert lab.end_of(attempt).exit_code == 137


def test_memory_that_processes_share_counts_once(lab: Lab) -> None:
    attempt = lab.run(python(SHARED), tasks=tasks(250), limits_memory=True)
    assert (lab.end_of(attempt).exit_code, lab.output(attempt)) == (0, b"done\n")


def test_the_most_memory_that_a_job_holds_is_reported_without_caches_of_files(lab: Lab) -> None:
    """What processes share counts once. The job runs on, and its file is read while it does.

    The name of its process ends within a character: the kernel keeps 15 bytes.
    """
    script = f"import ctypes; ctypes.CDLL(None).prctl(15, b'aaaaaaaaaaaaaa\\xc3\\xbc'){SHARED}".replace(
        "time.sleep(3)", "open('read', 'wb').write(bytes(64 << 20)); time.sleep(600)"
    )
    attempt = lab.launch(python(script))
    until(lambda: lab.report(attempt).peak_memory_mib >= 96)
    assert lab.report(attempt).peak_memory_mib < 150
    lab.folder(attempt).memory(1).touch()  # as a loss of power may leave it
    assert lab.report(attempt).peak_memory_mib >= 96


def test_without_the_limit_it_may_use_more(lab: Lab) -> None:
    attempt = lab.launch(python(HOLD.format(mib=300)), tasks=tasks(200))
    lab.wait_for_output(attempt, b"holds it")


def test_jobs_are_ended_before_the_service_when_memory_is_short(lab: Lab) -> None:
    attempt = lab.run("cat /proc/self/oom_score_adj")
    assert int(lab.output(attempt)) >= 500 > int(Path("/proc/self/oom_score_adj").read_text())


@pytest.fixture
def of_nobody(place: Path) -> Iterator[Lab]:
    lab = Lab(place, job_user="nobody")
    yield lab
    lab.stop_all()


@pytest.mark.skipif(os.geteuid() != 0, reason="without root, jobs have the account of the tests")
def test_a_fork_bomb_is_bounded_and_a_job_of_another_account_goes_on(of_nobody: Lab) -> None:
    other = of_nobody.launch("while :; do sleep 0.1; echo tick; done", account="daemon")
    attempt = of_nobody.launch(["python3", "-ESc", FORK_BOMB], most_processes=150)  # of Debian: nobody reaches it
    of_nobody.wait_for_output(attempt, b"refused after")
    of_nobody.end_of(attempt)
    seen = len(of_nobody.output(other))
    of_nobody.wait_for_output(other, b"tick\n" * (seen // 5 + 2))
    assert of_nobody.processes(attempt) == []
