"""Lines of native libraries are in the logs of no process that solves: of the scheduler, the web, workers of Celery."""

import subprocess
import sys

import pytest

WEB = "from types import SimpleNamespace; from config.web_server import post_fork"
BEGINNINGS = {
    "scheduler": "from operations.native_output import discard_native_output; discard_native_output()",
    "web": f"{WEB}; post_fork(None, SimpleNamespace(place=0, sockets=[0]))",
    "worker of Celery": "from config.celery import keep_our_lines_alone; keep_our_lines_alone()",
}


@pytest.mark.parametrize("process", BEGINNINGS)
def test_what_a_native_library_prints_is_discarded_and_ours_is_kept(process: str) -> None:
    code = f"import os; {BEGINNINGS[process]}; os.write(1, b'HiGHS'); print('ours')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("ours\n", "")
