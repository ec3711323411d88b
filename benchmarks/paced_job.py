"""Training at the rate of its GPU type, with checkpoints; `benchmarks.fidelity` submits its text to `python -c`.

The argument is JSON: steps, set_up_s before the first step of an attempt, and rates in steps/s by GPU type. It sleeps
nearly all the time, so that many run on a small machine.
"""

import json
import os
import sys
import time
from pathlib import Path

from motley_client.training import EXIT_REQUEUE, checkpoint_dir, progress, resume, save_atomically, should_stop

REPORT_S = 1.0
NAP_S = 0.1
"""Longest single sleep: Python completes a sleep before the loop sees a signal."""


def main() -> int:
    """Do the steps that are left, or those until the job is to stop; returns the exit code."""
    should_stop()  # from here on, SIGTERM leads to a checkpoint
    told = json.loads(sys.argv[1])
    checkpoint = checkpoint_dir() / "step"
    first, rate = _saved(checkpoint), told["rates"][os.environ["MOTLEY_GPU_TYPE"]]
    sleep_until(time.monotonic() + told["set_up_s"])
    step = train(first, told["steps"], rate)
    save_atomically(checkpoint, lambda file: file.write(str(step).encode()))
    return 0 if step >= told["steps"] else EXIT_REQUEUE


def _saved(checkpoint: Path) -> int:
    return int(checkpoint.read_text()) if resume() and checkpoint.exists() else 0


def train(first: int, steps: int, rate: float) -> int:
    """Train from a step on; returns the last one. It reports steps at the moment that they are done."""
    began, step, at_once = time.monotonic(), first, max(int(rate * REPORT_S), 1)
    while step < steps and not should_stop():
        progress(step)
        due = min(step + at_once, steps)
        sleep_until(began + (due - first) / rate)
        done = first + int((time.monotonic() - began) * rate)
        step = min(done, due) if should_stop() else due
    progress(step)
    return step


def sleep_until(due_s: float) -> None:
    """Sleep until then or until the job is to stop."""
    while (left_s := due_s - time.monotonic()) > 0 and not should_stop():
        time.sleep(min(left_s, NAP_S))


if __name__ == "__main__":
    sys.exit(main())
