"""What a commit costs on SQLite that lasts through a power cut: `python -m benchmarks.durability [FOLDER]`.

The folder is on the disk that is asked about; the figure is that of one small row, written alone, in WAL mode.
"""

import argparse
import os
import sqlite3
import tempfile
import time
from pathlib import Path
from statistics import median

COMMITS, REPEATS = 500, 7
SETTINGS = {"NORMAL": "a power cut may take the last commits", "FULL": "what was committed lasts"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=Path.cwd())
    folder = parser.parse_args().folder
    for synchronous, meaning in SETTINGS.items():
        commit_ms = median(_commit_ms(folder, synchronous) for _ in range(REPEATS))
        print(f"synchronous={synchronous}: {commit_ms:.2f} ms for a commit ({meaning})")
    print(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


def _commit_ms(folder: Path, synchronous: str) -> float:
    with tempfile.TemporaryDirectory(dir=folder, prefix=".durability-") as inside:
        database = sqlite3.connect(Path(inside, "sqlite3"), isolation_level=None)
        database.executescript(f"PRAGMA journal_mode=WAL; PRAGMA synchronous={synchronous}; CREATE TABLE a (b TEXT)")
        began_s = time.perf_counter()
        for _ in range(COMMITS):
            database.execute("INSERT INTO a VALUES (?)", ("x" * 200,))
        taken_s = time.perf_counter() - began_s
        database.close()
    return 1000 * taken_s / COMMITS


if __name__ == "__main__":
    main()
