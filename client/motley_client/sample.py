"""A small real training: two spirals, told apart by a perceptron. It checkpoints and resumes exactly.

python -m motley_client.sample --steps 2000
"""

import argparse
import os
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

# A dozen of these share a small machine; NumPy reads the variables when it is imported.
os.environ |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}

import numpy as np

from motley_client.spirals import Array, Training, two_spirals
from motley_client.training import (
    EXIT_REQUEUE,
    TrainingError,
    batch_size,
    checkpoint_dir,
    progress,
    resume,
    save_atomically,
    should_stop,
    stop_reason,
)

POINTS = 1024
PROGRESS_PERIOD_S, LOG_PERIOD_S = 0.5, 2.0
NAP_S = 0.05
"""The longest sleep in one go: Python finishes a sleep before the loop hears of a signal."""


@dataclass(frozen=True)
class Options:
    """What the command line says."""

    steps: int
    checkpoint_every: int
    hidden: int
    batch_size: int
    seed: int
    trace: Path


@dataclass(frozen=True)
class Place:
    """Where this process runs, as Motley says; one process on its own outside Motley."""

    rank: int
    nodes: int
    gpu_type: str
    gpus: int
    rate: float | None
    """Steps/s that the emulated hardware would reach; None on real hardware."""

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


class Pace:
    """Keeps a loop at `rate` steps/s. Deadlines count from the start, so that late wake-ups do not add up."""

    def __init__(self, rate: float | None) -> None:
        self.rate, self.started, self.steps = rate, time.monotonic(), 0

    def await_turn(self) -> None:
        """Sleep until the next step would be done; return at once when the job should stop."""
        self.steps += 1
        if self.rate is None:
            return
        due = self.started + self.steps / self.rate
        while (left := due - time.monotonic()) > 0 and not should_stop():
            time.sleep(min(left, NAP_S))


class Beat:
    """True once per period, and the first time."""

    def __init__(self, period_s: float) -> None:
        self.period_s, self.next = period_s, 0.0

    def __call__(self) -> bool:
        now = time.monotonic()
        due = now >= self.next
        if due:
            self.next = now + self.period_s
        return due


class Journal:
    """Tells Motley and the log how the training goes."""

    def __init__(self, options: Options, place: Place) -> None:
        self.options, self.place = options, place
        self.progress_due, self.log_due = Beat(PROGRESS_PERIOD_S), Beat(LOG_PERIOD_S)
        self.started, self.steps = time.monotonic(), 0

    def note(self, training: Training, points: Array, labels: Array) -> None:
        self.steps += 1
        if self.progress_due():
            self.report(training)
        if self.log_due():
            self.log(training, points, labels)

    def report(self, training: Training) -> None:
        if self.place.rank > 0:
            return
        nodes = self.place.nodes
        samples = self.options.batch_size * nodes
        noise = {"grad_sqr": training.noise.sqr, "grad_var": training.noise.var / nodes} if training.noise else {}
        progress(training.step, epoch=training.step * samples / POINTS, loss=training.loss, batch_size=samples, **noise)

    def log(self, training: Training, points: Array, labels: Array) -> None:
        rate = self.steps / (time.monotonic() - self.started)
        say(
            f"step {training.step}/{self.options.steps}  loss {training.loss:.4f}  "
            f"accuracy {training.accuracy(points, labels):.1%}  {rate:.1f} steps/s  "
            f"{self.place.gpus} x {self.place.gpu_type}"
        )


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def begin(checkpoint: Path, options: Options, place: Place) -> Training:
    """The training where the last attempt saved it, or a fresh one."""
    if resume() and checkpoint.exists():
        training = Training.load(checkpoint, rank=place.rank)
        say(f"resumed at step {training.step} from {checkpoint}")
    else:
        training = Training.fresh(hidden=options.hidden, seed=options.seed, rank=place.rank)
    if training.weights[0].shape[1] != options.hidden:
        raise TrainingError(
            f"{checkpoint} holds {training.weights[0].shape[1]} hidden units, not {options.hidden}: "
            "give the --hidden it was made with, or empty MOTLEY_CHECKPOINT_DIR."
        )
    return training


def run(options: Options, place: Place) -> int:
    """Train to the last step or until Motley says stop; the exit code."""
    checkpoint = checkpoint_dir() / "spirals.npz"
    points, labels = two_spirals(POINTS, np.random.default_rng(options.seed))
    points, labels = points[place.rank :: place.nodes], labels[place.rank :: place.nodes]
    training = begin(checkpoint, options, place)
    journal, pace = Journal(options, place), Pace(place.rate)

    def save() -> None:
        if place.rank == 0:
            save_atomically(checkpoint, training.save)

    with options.trace.open("a", buffering=1) as trace:
        while training.step < options.steps and not should_stop():
            training.advance(points, labels, batch_size=options.batch_size)
            trace.write(f"{training.step}\n")
            pace.await_turn()
            if training.step % options.checkpoint_every == 0:
                save()
            journal.note(training, points, labels)
    save()
    journal.report(training)
    journal.log(training, points, labels)
    if training.step >= options.steps:
        return 0
    say(f"stopped ({stop_reason() or 'SIGTERM'}) with the checkpoint at step {training.step}: run me again")
    # Whatever the reason: whether a job that could go on should is the scheduler's to decide.
    return EXIT_REQUEUE


def positive(text: str) -> int:
    if (number := int(text)) < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


def parse(arguments: list[str]) -> Options:
    parser = argparse.ArgumentParser(prog="python -m motley_client.sample", description=__doc__)
    parser.add_argument("--steps", type=positive, default=2000)
    parser.add_argument("--checkpoint-every", type=positive, default=50, metavar="STEPS")
    parser.add_argument("--hidden", type=positive, default=32, metavar="UNITS")
    parser.add_argument("--batch-size", type=positive, default=64)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--trace",
        type=Path,
        default=Path(os.devnull),
        metavar="FILE",
        help="append the number of every step that is executed",
    )
    return Options(**vars(parser.parse_args(arguments)))


def tuned(options: Options, place: Place) -> Options:
    """With this node's part of the batch that Motley chose, if it did."""
    return replace(options, batch_size=max(batch_size(options.batch_size * place.nodes) // place.nodes, 1))


def main() -> int:
    should_stop()  # from here on SIGTERM ends in a checkpoint
    try:
        place = Place.of_environment()
        return run(tuned(parse(sys.argv[1:]), place), place)
    except TrainingError as error:
        sys.stderr.write(f"{error}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main())
