"""Disk usage of the folders of jobs, measured by a process of its own, since that may take minutes.

Run as `python -ES -m engines.supervision.disk_usage <folder of the results>`.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path

from engines.attempt_files import write_json
from engines.supervision.engine_root import make_folder, start_in_background

LOCK, WANTED = "lock", "wanted"
OURS = 0o700


def sizes(wanted: Mapping[str, Sequence[Path]], *, results: Path) -> dict[str, int]:
    """Bytes of the folders of each job that was measured, told once; begins to measure the others."""
    make_folder(results, OURS)
    found = {job: size for job in wanted if (size := _taken(results / job)) is not None}
    left = {job: [str(folder) for folder in folders] for job, folders in wanted.items() if job not in found}
    if left:
        write_json(results / WANTED, left)
        start_in_background("engines.supervision.disk_usage", results)
    return found


def _taken(result: Path) -> int | None:
    try:
        size = int(json.loads(result.read_text())["bytes"])
    except FileNotFoundError:
        return None
    result.unlink()
    return size


def main() -> None:
    results = Path(sys.argv[1])
    lock = os.open(results / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    with suppress(BlockingIOError):  # another measures: what it does not have yet is asked for again
        flock(lock, LOCK_EX | LOCK_NB)
        for job, folders in json.loads((results / WANTED).read_text()).items():
            write_json(results / job, {"bytes": disk_usage(folders)})


def disk_usage(folders: Sequence[str]) -> int:
    """Bytes that the folders take on their disk; a folder that is not there takes none."""
    program = ["du", "--summarize", "--total", "--block-size=1", "--one-file-system", "--", *folders]
    told = subprocess.run(program, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)  # noqa: S603
    *_, total = told.stdout.splitlines()
    return int(total.split()[0])


if __name__ == "__main__":
    main()
