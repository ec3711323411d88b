"""Busy processes beside `make test` (tests/under_load.py): they compute all the time, and go with the run."""

import os
import time
from pathlib import Path

from tests.under_load import busy_processes


def test_busy_processes_take_time_of_the_processor_and_go() -> None:
    with busy_processes(2) as processes:
        pids = [process.pid for process in processes]
        until = time.monotonic() + 300
        while not all(_used_s(pid) > 0.1 for pid in pids):
            assert time.monotonic() < until
            time.sleep(0.01)
    assert all(process.returncode is not None for process in processes)


def _used_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) / os.sysconf("SC_CLK_TCK")
