"""Starts of the embedded service: how long until it answers, and what its processes cost.

`python -m benchmarks.service_start`. The first start of a data folder makes its database; the others find it.
"""

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryDirectory
from urllib.error import URLError
from urllib.request import urlopen

ROOT = Path(__file__).resolve().parents[1]
CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
SETTLED_S = 10
"""After the first answer: what processes do as they begin is done."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--starts", type=int, default=4, help="the first makes the database")
    parser.add_argument("--port", type=int, default=8991)
    options = parser.parse_args()
    print("| start | answers after | CPU time | memory (PSS) | processes |\n| --- | --- | --- | --- | --- |")
    with TemporaryDirectory(prefix="motley-start-") as folder:
        for number in range(1, options.starts + 1):
            print(f"| {number} | {measured_start(Path(folder), options.port)} |", flush=True)


def measured_start(folder: Path, port: int) -> str:
    mark = token_hex(8)
    settings = {"MOTLEY_VAR": str(folder / "var"), "MOTLEY_PORT": str(port), "DEMO": "0", "START_MARK": mark}
    began = time.monotonic()
    with subprocess.Popen(
        [sys.executable, "manage.py", "serve"], cwd=ROOT, env=os.environ | settings, stdout=subprocess.DEVNULL
    ) as service:
        while not answers(port):
            if service.poll() is not None:
                sys.exit("the service did not start")
            time.sleep(0.05)
        answered_s = time.monotonic() - began
        time.sleep(SETTLED_S)
        found = list(processes(mark))
        costs = f"{sum(map(cpu_s, found)):.1f} s | {sum(map(memory_mib, found)):.0f} MiB | {len(found)}"
        service.send_signal(signal.SIGINT)
    return f"{answered_s:.1f} s | {costs}"


def answers(port: int) -> bool:
    try:
        with urlopen(f"http://localhost:{port}/livez", timeout=60) as answer:
            return bool(answer.status == 200)
    except (URLError, ConnectionError):
        return False


def processes(mark: str) -> Iterator[Path]:
    """Folders in /proc of the processes with the mark in their environment."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (folder / "environ").read_bytes():
                yield folder
        except OSError:
            continue


def cpu_s(process: Path) -> float:
    """Of the process and of its children that have ended: proc(5), fields 14 to 17 of stat."""
    fields = (process / "stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / CLOCK_TICKS


def memory_mib(process: Path) -> float:
    """Proportional set size: memory that processes share counts once."""
    lines = (process / "smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


if __name__ == "__main__":
    main()
