"""Sample job: trains a perceptron to classify two spirals, with checkpoints and exact resumption.

python -m motley_client.sample --steps 2000
"""

import argparse
import os
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

# Many of these share a small machine. NumPy reads the variables when it is imported.
os.environ |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}

import numpy as np

from motley_client.spirals import LEARNING_RATE, Array, Training, two_spirals
from motley_client.training import (
    EXIT_REQUEUE,
    TrainingError,
    batch_size,
    checkpoint_dir,
    next_checkpoint,
    progress,
    restoring,
    resume,
    save_atomically,
    should_stop,
    stop_reason,
)

POINTS = 1024
PROGRESS_PERIOD_S, LOG_PERIOD_S = 0.5, 2.0
MAX_SLEEP_S = 0.05
"""Longest single sleep: Python completes a sleep before the loop sees a signal."""


@dataclass(frozen=True)
class Options:
    """Command-line options."""

    steps: int
    checkpoint_every: int | None
    """Steps; None: when it pays."""
    lr: float
    hidden: int
    batch_size: int
    seed: int
    trace: Path


@dataclass(frozen=True)
class Allocation:
    """Rank and GPUs of this process, from the environment of the job; a single process outside Motley."""

    rank: int
    nodes: int
    gpu_type: str
    gpus: int
    rate: float | None
    """Rate of the emulated hardware in steps/s; None on real hardware."""

    @classmethod
    def of_environment(cls) -> Self:
        env = os.environ
        emulated = env.get("MOTLEY_EMULATED") == "1"
        return cls(
            rank=int(env.get("MOTLEY_NODE_RANK", "0")),
            nodes=int(env.get("MOTLEY_NUM_NODES", "1")),
            gpu_type=env.get("MOTLEY_GPU_TYPE", "cpu"),
            gpus=int(env.get("MOTLEY_WORLD_SIZE", "1")),
            rate=float(env["MOTLEY_EMULATED_RATE"]) if emulated and "MOTLEY_EMULATED_RATE" in env else None,
        )


class RateLimiter:
    """Limits a loop to `rate` steps/s. Deadlines are relative to the start, so that late wake-ups do not add up."""

    def __init__(self, rate: float | None) -> None:
        self.rate, self.started, self.steps = rate, time.monotonic(), 0

    def wait(self) -> None:
        """Sleep until the next step would be done on the emulated hardware, or until the job should stop."""
        self.steps += 1
        if self.rate is None:
            return
        due = self.started + self.steps / self.rate
        while (left := due - time.monotonic()) > 0 and not should_stop():
            time.sleep(min(left, MAX_SLEEP_S))


class Interval:
    """Callable that returns True once per period, beginning with the first call."""

    def __init__(self, period_s: float) -> None:
        self.period_s, self.next = period_s, 0.0

    def __call__(self) -> bool:
        now = time.monotonic()
        due = now >= self.next
        if due:
            self.next = now + self.period_s
        return due


class ProgressReporter:
    """Reports progress to Motley and to the log, each at its interval."""

    def __init__(self, options: Options, allocation: Allocation) -> None:
        self.options, self.allocation = options, allocation
        self.progress_due, self.log_due = Interval(PROGRESS_PERIOD_S), Interval(LOG_PERIOD_S)
        self.started, self.steps = time.monotonic(), 0

    def step_done(self, training: Training, points: Array, labels: Array) -> None:
        self.steps += 1
        if self.progress_due():
            self.report(training)
        if self.log_due():
            self.log(training, points, labels)

    def report(self, training: Training) -> None:
        if self.allocation.rank > 0:
            return
        nodes = self.allocation.nodes
        samples = self.options.batch_size * nodes
        noise: dict[str, Any] = (
            {"grad_sqr": training.noise.sqr, "grad_var": training.noise.var / nodes} if training.noise else {}
        )
        progress(training.step, epoch=training.step * samples / POINTS, loss=training.loss, batch_size=samples, **noise)

    def log(self, training: Training, points: Array, labels: Array) -> None:
        rate = self.steps / (time.monotonic() - self.started)
        say(
            f"step {training.step}/{self.options.steps}  loss {training.loss:.4f}  "
            f"accuracy {training.accuracy(points, labels):.1%}  {rate:.1f} steps/s  "
            f"{self.allocation.gpus} x {self.allocation.gpu_type}"
        )


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def load_or_initialize(checkpoint: Path, options: Options, allocation: Allocation) -> Training:
    """The training state from the checkpoint of an earlier attempt, or a new one."""
    if resume() and checkpoint.exists():
        with restoring():
            training = Training.load(checkpoint, rank=allocation.rank)
        say(f"resumed at step {training.step} from {checkpoint}")
    else:
        training = Training.fresh(hidden=options.hidden, seed=options.seed, rank=allocation.rank)
    if training.weights[0].shape[1] != options.hidden:
        raise TrainingError(
            f"{checkpoint} holds {training.weights[0].shape[1]} hidden units, not {options.hidden}: "
            "use the same --hidden as before, or empty MOTLEY_CHECKPOINT_DIR."
        )
    return training


def run(options: Options, allocation: Allocation) -> int:
    """Train to the last step or until the job should stop; return the exit code."""
    checkpoint = checkpoint_dir() / "spirals.npz"
    points, labels = two_spirals(POINTS, np.random.default_rng(options.seed))
    points, labels = points[allocation.rank :: allocation.nodes], labels[allocation.rank :: allocation.nodes]
    training = load_or_initialize(checkpoint, options, allocation)
    reporter, limiter = ProgressReporter(options, allocation), RateLimiter(allocation.rate)

    def save() -> None:
        if allocation.rank == 0:
            save_atomically(checkpoint, training.save)

    with options.trace.open("a", buffering=1) as trace:
        while training.step < options.steps and not should_stop():
            training.advance(points, labels, batch_size=options.batch_size, learning_rate=options.lr)
            trace.write(f"{training.step}\n")
            limiter.wait()
            if checkpoint_due(training.step, options):
                save()
            reporter.step_done(training, points, labels)
    save()
    reporter.report(training)
    reporter.log(training, points, labels)
    if training.step >= options.steps:
        return 0
    say(f"stopped ({stop_reason() or 'SIGTERM'}); checkpoint saved at step {training.step}")
    # Whatever the reason: the scheduler decides whether the job runs again.
    return EXIT_REQUEUE


def checkpoint_due(step: int, options: Options) -> bool:
    return next_checkpoint() <= 0 if options.checkpoint_every is None else step % options.checkpoint_every == 0


def positive(text: str) -> int:
    if (number := int(text)) < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


def parse(arguments: list[str]) -> Options:
    parser = argparse.ArgumentParser(prog="python -m motley_client.sample", description=__doc__)
    parser.add_argument("--steps", type=positive, default=2000)
    parser.add_argument("--checkpoint-every", type=positive, metavar="STEPS", help="default: when it pays")
    parser.add_argument("--lr", type=float, default=LEARNING_RATE, metavar="RATE", help="learning rate")
    parser.add_argument("--hidden", type=positive, default=32, metavar="UNITS")
    parser.add_argument("--batch-size", type=positive, default=64)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--trace",
        type=Path,
        default=Path(os.devnull),
        metavar="FILE",
        help="append the number of each executed step to this file",
    )
    return Options(**vars(parser.parse_args(arguments)))


def with_tuned_batch(options: Options, allocation: Allocation) -> Options:
    """The options with this node's part of the global batch size that Motley chose, if it chose one."""
    return replace(options, batch_size=max(batch_size(options.batch_size * allocation.nodes) // allocation.nodes, 1))


def main() -> int:
    should_stop()  # from here on, SIGTERM leads to a checkpoint
    try:
        allocation = Allocation.of_environment()
        return run(with_tuned_batch(parse(sys.argv[1:]), allocation), allocation)
    except TrainingError as error:
        sys.stderr.write(f"{error}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main())
