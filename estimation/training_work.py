"""Work of a job in steps of the initial batch: what is done, what is left, and what a step of it is worth. Pure.

A job whose batch is tuned reports its own steps. One of M samples is worth gain(M) of the initial batch, in which its
rates count (`estimation.goodput`), and M differs between and within its attempts: what its steps are worth is added up
as they are reported. Of any other job a step is a step.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from math import ceil, isfinite
from typing import NamedTuple, Protocol, Self

import numpy as np

from estimation.goodput import GradientNoise, gain


class Tuned(Protocol):
    """A job's columns: what its owner declares, and what it has reported."""

    @property
    def batch_size(self) -> Mapping[str, int]: ...
    @property
    def noise_scale(self) -> float | None: ...
    @property
    def noise_batch(self) -> int | None: ...
    @property
    def total_steps(self) -> int | None: ...
    @property
    def reported_total_steps(self) -> int | None: ...
    @property
    def step(self) -> int: ...
    @property
    def worth_done(self) -> float | None: ...


class TrainingWork(NamedTuple):
    """Steps of the initial batch, done and left (None: not known), and what each of its own steps is worth now."""

    own_steps: int
    done: float
    left: float | None
    each: float

    @classmethod
    def of(cls, job: Tuned) -> Self:
        """What is left is counted from the total as declared; else, and of a tuned job first, from that it reports.

        A declared total counts steps of the initial batch; a reported one is the own step at which the job will be done
        with the present batch.
        """
        tuned = bool(job.batch_size)
        each = worth_of_step(job.batch_size, job.noise_scale, job.noise_batch)
        done = float(job.step) if not tuned else job.step * each if job.worth_done is None else job.worth_done
        if job.reported_total_steps and (tuned or not job.total_steps):
            return cls(job.step, done, max(job.reported_total_steps - job.step, 0) * each, each)
        return cls(job.step, done, max(job.total_steps - done, 0.0) if job.total_steps else None, each)

    @property
    def total(self) -> float | None:
        """Steps of the initial batch from its beginning to its end."""
        return None if self.left is None else self.done + self.left

    @property
    def own_steps_left(self) -> float | None:
        """Its own, with the present batch."""
        return None if self.left is None else self.left / self.each

    @property
    def last_own_step(self) -> int | None:
        """The step at which it will be done with the present batch."""
        return None if self.own_steps_left is None else self.own_steps + ceil(self.own_steps_left - ROUNDING)


ROUNDING = 1e-6
"""What sums of floats may add to a whole number of steps."""


def worth_of_step(limits: Mapping[str, int], noise_scale: float | None, batch: int | None) -> float:
    """Steps of the initial batch that a step of so many samples is worth; 1 where the noise is not known."""
    if not limits or noise_scale is None or not batch:
        return 1.0
    initial = limits["initial"]
    if not isfinite(noise_scale):
        return batch / initial  # all noise: twice the samples are worth two steps
    return float(gain(GradientNoise(1.0, noise_scale / initial), np.array(batch / initial)))


class Reached(NamedTuple):
    """A step of a job, and what its steps up to it were worth."""

    step: int
    worth: float


class WorthByStep:
    """What the steps of a job were worth, between known steps by linear interpolation.

    `known` is in the order in which they were reached: a job that went back to a checkpoint replaces what came after.
    """

    def __init__(self, known: Iterable[Reached]) -> None:
        self._known = [Reached(0, 0.0)]
        for one in known:
            self._cut(one.step)
            self._known.append(one)

    def _cut(self, step: int) -> None:
        """Forget what was reached at this step or later, but for the beginning."""
        del self._known[max(bisect_left(self._known, (step,)), 1) :]

    def at(self, step: int, each: float) -> float:
        """Worth of the steps up to this one; of those after the last known step `each`."""
        last = self._known[-1]
        if step > last.step:
            return last.worth + (step - last.step) * each
        steps, worth = zip(*self._known, strict=True)
        return float(np.interp(step, steps, worth))
