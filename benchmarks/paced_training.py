"""Training whose batch follows its gradient noise and whose step times are those of a table.

`benchmarks.fidelity` submits its text to `python -c`, so that it imports nothing of the benchmarks.

The argument is JSON: set_up_s; initial, the initial batch; micro_batches of a pipeline, else 0; gpus_per_replica by
type; fixed_s and sample_s by type and averaging_s for one node and for several, of which a step consists; ends of the
epochs in steps of the initial batch, and the noise scale of each in samples. It sleeps nearly all the time.
"""

import json
import os
import sys
import time
from bisect import bisect_right
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple

from motley_client.batch_scaling import BatchShare, GradientNoise, batch_choices, best_share
from motley_client.training import (
    EXIT_REQUEUE,
    batch_size,
    checkpoint_dir,
    micro_batches,
    progress,
    replicas,
    resume,
    save_atomically,
    should_stop,
)

REPORT_S = 1.0
NAP_S = 0.1
DUST = 1e-6
"""Of a step: an epoch's end is not missed by rounding."""


class Done(NamedTuple):
    """Steps of the job, and the steps of the initial batch that they are worth."""

    steps: int
    progress: float


def main() -> int:
    """Train until the last epoch ends, or until the job is to stop; returns the exit code."""
    should_stop()  # from here on, SIGTERM leads to a checkpoint
    told = json.loads(sys.argv[1])
    ended = checkpoint_dir() / "ended"
    if os.environ["MOTLEY_NODE_RANK"] != "0":
        return _wait_for(ended)
    checkpoint = checkpoint_dir() / "done"
    done = Done(*json.loads(checkpoint.read_text())) if resume() and checkpoint.exists() else Done(0, 0.0)
    sleep_until(time.monotonic() + told["set_up_s"])
    done = train(done, told)
    save_atomically(checkpoint, lambda file: file.write(json.dumps(done).encode()))
    if done.progress < told["ends"][-1]:
        return EXIT_REQUEUE
    ended.touch()
    return 0


def _wait_for(ended: Path) -> int:
    """What further nodes of the gang do; the first one trains."""
    while not ended.exists() and not should_stop():
        time.sleep(NAP_S)
    return 0 if ended.exists() else EXIT_REQUEUE


def train(done: Done, told: dict[str, Any]) -> Done:
    """Train from there on; steps are reported at the moment that they are done."""
    share, due_s = _first_share(told), time.monotonic()
    while done.progress < told["ends"][-1] and not should_stop():
        epoch = bisect_right(told["ends"], done.progress + DUST)
        sqr, var = 1.0, told["noise_scale"][epoch]
        gain = (var / told["initial"] + sqr) / (var / share.total + sqr)
        _report(done, share, GradientNoise(sqr, var / share.total), told["ends"][-1], gain)
        step_s = step_seconds(share, told)
        steps = min(max(int(REPORT_S / step_s), 1), ceil((told["ends"][epoch] - done.progress) / gain))
        due_s += steps * step_s
        sleep_until(due_s)
        if should_stop():
            steps -= max(int((due_s - time.monotonic()) / step_s) + 1, 0)
        done = Done(done.steps + steps, min(done.progress + steps * gain, told["ends"][epoch]))
        share = best_share(share, batch_choices(replicas()), GradientNoise(sqr, var / share.total))
    return done


def _first_share(told: dict[str, Any]) -> BatchShare:
    """The batch that Motley sets; that of a pipeline is fixed: so many micro-batches of one sample a replica."""
    if told["micro_batches"]:
        return BatchShare(told["micro_batches"] * replicas(), told["micro_batches"], 1)
    total, parts = batch_size(told["initial"]), micro_batches()
    return BatchShare(total, parts, total // (replicas() * parts))


def step_seconds(share: BatchShare, told: dict[str, Any]) -> float:
    """Seconds of all passes of a step; the last one averages. A pipeline hides its averaging."""
    gpu_type, nodes = os.environ["MOTLEY_GPU_TYPE"], int(os.environ["MOTLEY_NUM_NODES"])
    pass_s = told["fixed_s"][gpu_type] + told["sample_s"][gpu_type] * share.samples
    if told["micro_batches"]:
        return float(3 * (told["gpus_per_replica"][gpu_type] - 1 + told["micro_batches"]) * pass_s)
    several = 0.0 if replicas() == 1 else told["averaging_s"][nodes > 1]
    return float(share.micro_batches * pass_s + several)


def _report(done: Done, share: BatchShare, noise: GradientNoise, end: float, gain: float) -> None:
    """The job will be done at the step at which it would be with this batch and noise."""
    left = ceil((end - done.progress) / gain)
    progress(done.steps, batch_size=share.total, grad_sqr=noise.sqr, grad_var=noise.var, total_steps=done.steps + left)


def sleep_until(due_s: float) -> None:
    """Sleep until then or until the job is to stop."""
    while (left_s := due_s - time.monotonic()) > 0 and not should_stop():
        time.sleep(min(left_s, NAP_S))


if __name__ == "__main__":
    sys.exit(main())
