"""Runs `make test` again and again with eight busy processes beside it: `python -m tests.under_load 10`.

A test that waits for a fixed time, or for too short a time, is red here first. The output of each run is kept.
"""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

BUSY = 8
KEPT = Path(".cache/loaded")


def main() -> int:
    """Exit code 1 if a run was red."""
    KEPT.mkdir(parents=True, exist_ok=True)
    with busy_processes(BUSY):
        green = [_is_green(number) for number in range(1, int(sys.argv[1]) + 1)]
    print(f"{green.count(True)} green, {green.count(False)} red, with {BUSY} busy processes; output in {KEPT}")
    return 0 if all(green) else 1


@contextmanager
def busy_processes(number: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Each keeps a core busy, and ends with this process."""
    command = ["setpriv", "--pdeathsig", "KILL", sys.executable, "-c", "while True: pass"]
    processes = [subprocess.Popen(command) for _ in range(number)]
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _is_green(number: int) -> bool:
    path, began = KEPT / f"{number}.log", time.monotonic()
    with path.open("wb") as log:
        done = subprocess.run(["make", "test"], stdout=log, stderr=subprocess.STDOUT, check=False)
    word = "green" if done.returncode == 0 else "RED"
    print(f"{number}: {word} after {time.monotonic() - began:.0f} s", flush=True)
    failed = [line for line in path.read_text(errors="replace").splitlines() if line.startswith(("FAILED", "ERROR"))]
    print(*failed, sep="\n", end="\n" if failed else "", flush=True)
    return done.returncode == 0


if __name__ == "__main__":
    sys.exit(main())
