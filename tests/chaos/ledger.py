"""The job of a campaign: it notes each of its steps, so that a step that is left out or done by two at once is seen.

The notes are among its checkpoints, or in the folder LEDGER, which several machines share.
"""

from itertools import pairwise
from pathlib import Path

STEPS, STEP_S = 160, 0.05
PROGRAM = """\
import os, signal, sys, time
# ledger-of-steps
steps, step_s = int(sys.argv[1]), float(sys.argv[2])
place = os.environ.get("LEDGER") or os.environ["MOTLEY_CHECKPOINT_DIR"]
place += "/{}." + os.environ["MOTLEY_NODE_RANK"]
stops = []
signal.signal(signal.SIGTERM, lambda *_: stops.append(1))
path = place.format("step")


def write(path, text, flags):
    while True:  # a full disk is waited for: the job itself is no part of what is tested
        try:
            file = os.open(path, os.O_CREAT | os.O_WRONLY | flags, 0o644)
            try:
                os.write(file, text.encode())
                return os.fsync(file)
            finally:
                os.close(file)
        except OSError:
            time.sleep(0.1)


def steps_before():
    while True:  # a file system that has vanished is waited for, too, and its folder is held then
        try:
            folder = os.open(os.path.dirname(path), os.O_DIRECTORY)
            break
        except OSError:
            time.sleep(0.1)
    try:
        return int(open(os.open(os.path.basename(path), os.O_RDONLY, dir_fd=folder)).read())
    except FileNotFoundError:
        return 0


def replace(path):
    while True:
        try:
            return os.replace(path + ".new", path)
        except OSError:
            time.sleep(0.1)


done = steps_before()
while done < steps and not stops:
    time.sleep(step_s)
    done += 1
    # 16 bytes, so that no line crosses the border of a block: a full disk takes it whole or not at all
    write(place.format("ledger"), "%7s %7d\\n" % (os.environ["MOTLEY_ATTEMPT"], done), os.O_APPEND)
    write(path + ".new", str(done), os.O_TRUNC)
    replace(path)
sys.exit(0 if done >= steps else 75)
"""
COMMAND = ["/usr/bin/python3", "-ESc", PROGRAM, str(STEPS), str(STEP_S)]
MARK = b"ledger-of-steps"
"""In the command line of each of its processes."""


def read_ledger(path: Path) -> list[tuple[int, ...]]:
    return [tuple(map(int, line.split())) for line in path.read_text().splitlines()]


def ledger_fault(rows: list[tuple[int, ...]], *, to_the_end: bool = True) -> str:
    """What is wrong with lines (attempt, step); a step may be repeated where a kill came before its checkpoint.

    Not `to_the_end`: the job was cancelled, or its last attempt was on fewer nodes and had no such rank.
    """
    if not rows or rows[0][1] != 1 or (to_the_end and rows[-1][1] != STEPS):
        return f"it goes from {rows[:1]} to {rows[-1:]}"
    for before, after in pairwise(rows):
        goes_on = after == (before[0], before[1] + 1)
        resumes = after[0] > before[0] and after[1] in (before[1], before[1] + 1)
        if not (goes_on or resumes):
            return f"{before} is followed by {after}"
    return ""
