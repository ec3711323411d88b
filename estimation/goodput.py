r"""Goodput: how much training gets done in a second, of the throughput and of what a larger batch is worth.

A step of M samples brings the training as far as gain(M) steps of the initial batch M0 do:

.. math::
    \mathrm{gain}(M) = \frac{v + g}{v M_0 / M + g}, \qquad
    \mathrm{efficiency}(M) = \mathrm{gain}(M) \frac{M_0}{M}, \qquad
    \mathrm{goodput} = \mathrm{throughput} \cdot \mathrm{efficiency}

with g the squared norm of the gradient and v its variance over batches of M0 samples: the noisier the gradient, the
more a larger batch is worth. Samples per second that a steady learner would need; divided by M0, steps of the initial
batch per second, which is what rates of jobs with a tuned batch are in.

References
----------
.. [1] Johnson et al., 2020, "AdaScale SGD: A User-Friendly Algorithm for Distributed Training", section 3 (the gain).
.. [2] Qiao et al., OSDI 2021, "Pollux: Co-adaptive Cluster Scheduling for Goodput-Optimized Deep Learning", sections
   2.2 and 3.1 (efficiency, goodput), 4.1 (the choice of the batch).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from estimation.types import Floats, Ints

CANDIDATES = 50
DUST = 1e-8
"""What rounding leaves of a whole number."""

Throughput = Callable[[Ints, Ints, Ints, Ints], Floats]
"""Samples/s by nodes, GPUs, samples per GPU at once, and passes before the last; arrays that broadcast."""


class GradientNoise(NamedTuple):
    """The squared norm of the gradient, and its variance over batches of the initial size."""

    sqr: float
    var: float


NO_NOISE = GradientNoise(1.0, 0.0)
"""Nothing is known of the noise: a larger batch is taken to be worth no more than the initial one."""


@dataclass(frozen=True)
class BatchLimits:
    """What the batch may be, in samples: of a step of the whole job, and of one GPU at once."""

    initial: int
    most: int
    most_per_gpu: int
    least_per_gpu: int = 1


class Batches(NamedTuple):
    """The batch chosen for each configuration (K,): samples per GPU at once, and passes before the last."""

    local: Ints
    passes: Ints
    goodput: Floats
    """Samples/s of the throughput, times the efficiency; 0: no batch within the limits."""

    def total(self, gpus: Ints) -> Ints:
        """Samples of a step (K,)."""
        samples: Ints = gpus * self.local * (self.passes + 1)
        return samples


class BatchChoice(NamedTuple):
    """A batch of one configuration: samples of a step, passes before the last, and the samples/s expected of it."""

    batch: int
    passes: int
    samples_per_s: float


def gain(noise: GradientNoise, scale: Floats) -> Floats:
    """How many steps of the initial batch a step of `scale` times as many samples is worth."""
    denominator = noise.var / scale + noise.sqr
    certain = np.ones_like(scale)
    worth: Floats = np.divide(noise.var + noise.sqr, denominator, out=certain, where=denominator > 0)
    return worth


def efficiency(noise: GradientNoise, scale: Floats) -> Floats:
    """What a sample is worth in a batch `scale` times the initial one, 0 to 1."""
    worth: Floats = gain(noise, scale) / scale
    return worth


def best_batches(
    throughput: Throughput, limits: BatchLimits, noise: GradientNoise, *, nodes: Ints, gpus: Ints
) -> Batches:
    """Choose the batch of most goodput for configurations of so many nodes (K,) and GPUs (K,).

    Of 50 sizes from the least possible to the most, in equal ratios. What does not fit on the GPUs at once is done in
    several passes; so is whatever exceeds the initial batch on one GPU, for the noise to be seen between passes.
    """
    least = np.maximum(limits.initial, limits.least_per_gpu * gpus)
    local, passes = divided(np.geomspace(least, limits.most, CANDIDATES), limits, gpus)
    goodput = goodput_of(throughput, limits, noise, local, passes, nodes=nodes, gpus=gpus)
    best = goodput.argmax(axis=0), np.arange(goodput.shape[1])
    return Batches(local[best], passes[best], goodput[best])


def batch_choices(throughput: Throughput, limits: BatchLimits, *, nodes: int, gpus: int) -> list[BatchChoice]:
    """The batches among which `best_batches` chooses in one configuration, in rising order."""
    on, k = np.array([nodes]), np.array([gpus])
    least = max(limits.initial, limits.least_per_gpu * gpus)
    sizes = np.geomspace(least, max(limits.most, least), CANDIDATES)
    local, passes = divided(sizes, limits, k)
    local = np.minimum(local, limits.most // (gpus * (passes + 1)))  # shares are rounded up: the largest down
    total = gpus * local * (passes + 1)
    fits = (local >= max(limits.least_per_gpu, 1)) & (local <= limits.most_per_gpu)
    speed = throughput(on, k, np.maximum(local, 1), passes)
    rows = zip(total[fits].tolist(), passes[fits].tolist(), speed[fits].tolist(), strict=True)
    return sorted({(batch, passes): BatchChoice(batch, passes, rate) for batch, passes, rate in rows}.values())


def best_choice(choices: Sequence[BatchChoice], noise: GradientNoise, initial: int) -> BatchChoice:
    """The choice of most goodput."""
    speed, batch = (np.array([getattr(one, name) for one in choices], float) for name in ("samples_per_s", "batch"))
    return choices[int((speed * efficiency(noise, batch / initial)).argmax())]


def goodput_of(
    throughput: Throughput,
    limits: BatchLimits,
    noise: GradientNoise,
    local: Ints,
    passes: Ints,
    *,
    nodes: Ints,
    gpus: Ints,
) -> Floats:
    """The goodput of these batches, everything broadcast; 0 where one is not within the limits of a GPU."""
    scale = gpus * local * (passes + 1) / limits.initial
    goodput = throughput(nodes, gpus, local, passes) * efficiency(noise, scale)
    possible = (local >= limits.least_per_gpu) & (local <= limits.most_per_gpu)
    return np.where(possible, goodput, 0)


def divided(batch: Floats, limits: BatchLimits, gpus: Ints) -> tuple[Ints, Ints]:
    """Samples per GPU at once, rounded up, and passes before the last, of steps of so many samples; both broadcast."""
    per_gpu = batch / gpus
    passes = (np.ceil(per_gpu / limits.most_per_gpu - DUST) - 1).astype(np.int64)
    must_repeat = (gpus == 1) & (per_gpu > limits.initial + DUST)
    passes = np.where(must_repeat, np.maximum(passes, 1), passes)
    return np.ceil(per_gpu / (passes + 1) - DUST).astype(np.int64), passes
