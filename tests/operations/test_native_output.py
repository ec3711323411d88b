"""What native libraries print is not among a program's results, nor in the logs of any process that solves."""

import subprocess
import sys

import pytest

WEB = "from types import SimpleNamespace; from config.web_server import post_fork"
OWN = "from allocation.solvers.linear_program import divert_native_output"
BEGINNINGS = {
    "simulator": (f"{OWN}; divert_native_output(2)", "HiGHS"),
    "scheduler": (f"{OWN}; divert_native_output()", ""),
    "twice": (f"{OWN}; divert_native_output(); divert_native_output()", ""),
    "web": (f"{WEB}; post_fork(None, SimpleNamespace(place=0, sockets=[0]))", ""),
    "worker of Celery": ("from config.celery import keep_our_lines_alone; keep_our_lines_alone()", ""),
}


@pytest.mark.parametrize("process", BEGINNINGS)
def test_what_a_native_library_prints_is_diverted_and_ours_is_kept(process: str) -> None:
    begin, diverted = BEGINNINGS[process]
    code = f"import os, sys; {begin}; os.write(1, b'HiGHS'); print('ours', file=sys.__stdout__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("ours\n", diverted)
