"""Model of the sample job: two-spirals data, multilayer perceptron, SGD with momentum, gradient noise estimate."""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Self

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

LEARNING_RATE, MOMENTUM = 0.05, 0.9
NOISE_SMOOTHING = 0.02
"""Weight of one step in the exponential moving averages of the gradient noise."""


def two_spirals(count: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Two-spirals data set: points (count, 2) and labels (count,), 0 or 1."""
    label = np.arange(count) * 2 // count  # in halves, so that every strided subset is balanced
    angle = np.sqrt(rng.random(count)) * 3 * np.pi
    arm = np.stack([np.cos(angle + np.pi * label), np.sin(angle + np.pi * label)], axis=1)
    return arm * angle[:, None] / (3 * np.pi) + rng.normal(0, 0.01, (count, 2)), label.astype(np.float64)


@dataclass(frozen=True)
class Noise:
    """Squared norm of the gradient and its variance over batches, as exponential moving averages."""

    sqr: float
    var: float

    @classmethod
    def updated(cls, one: list[Array], other: list[Array], *, before: "Noise | None") -> "Noise":
        """Update by the gradients of two half batches: half of their difference has the variance of their mean."""
        pairs = list(zip(one, other, strict=True))
        var = sum(float(((a - b) ** 2).sum()) for a, b in pairs) / 4
        sqr = sum(float(((a + b) ** 2).sum()) for a, b in pairs) / 4 - var
        if before is None:
            return cls(max(sqr, 0.0), var)
        return cls(
            max(before.sqr + NOISE_SMOOTHING * (sqr - before.sqr), 0.0),
            before.var + NOISE_SMOOTHING * (var - before.var),
        )


@dataclass
class Training:
    """Training state, as saved in a checkpoint, and the SGD step."""

    weights: list[Array]
    momentum: list[Array]
    rng: np.random.Generator
    step: int = 0
    loss: float = math.nan
    noise: "Noise | None" = None
    """Not in the checkpoint: it is estimated again within a few steps."""

    @classmethod
    def fresh(cls, *, hidden: int, seed: int, rank: int) -> Self:
        bits = np.random.PCG64(seed)
        rng = np.random.Generator(bits)
        shapes = [(3, hidden), (hidden + 1, hidden), (hidden + 1, 1)]  # the last row of each is the bias
        weights = [rng.normal(0, (2 / rows) ** 0.5, (rows, columns)) for rows, columns in shapes]
        return cls(weights, [np.zeros_like(layer) for layer in weights], stream(bits, rank))

    @classmethod
    def load(cls, path: Path, *, rank: int) -> Self:
        with np.load(path) as saved:
            count = len(saved.files) // 2 - 1
            bits = np.random.PCG64()
            bits.state = json.loads(str(saved["rng"]))
            weights = [saved[f"weight_{layer}"] for layer in range(count)]
            momentum = [saved[f"momentum_{layer}"] for layer in range(count)]
            return cls(weights, momentum, stream(bits, rank), int(saved["step"]), float(saved["loss"]))

    def save(self, file: BinaryIO) -> None:
        arrays: dict[str, Any] = {f"weight_{layer}": array for layer, array in enumerate(self.weights)}
        arrays |= {f"momentum_{layer}": array for layer, array in enumerate(self.momentum)}
        np.savez(file, step=self.step, loss=self.loss, rng=json.dumps(self.rng.bit_generator.state), **arrays)

    def advance(self, points: Array, labels: Array, *, batch_size: int, learning_rate: float = LEARNING_RATE) -> None:
        """One step of SGD with momentum on a random batch."""
        batch = (self.rng.random(batch_size) * len(labels)).astype(int)
        self.loss, gradients = self._gradients(points[batch], labels[batch])
        self.momentum = [MOMENTUM * v - learning_rate * g for v, g in zip(self.momentum, gradients, strict=True)]
        self.weights = [w + v for w, v in zip(self.weights, self.momentum, strict=True)]
        self.step += 1

    def _gradients(self, points: Array, labels: Array) -> tuple[float, list[Array]]:
        """Loss and gradients of a batch, from its two halves, whose difference gives the noise estimate."""
        halves = 2 if len(labels) % 2 == 0 and len(labels) else 1
        losses, gradients = loss_and_gradients(
            self.weights, points.reshape(halves, -1, points.shape[-1]), labels.reshape(halves, -1)
        )
        if halves == 2:
            self.noise = Noise.updated([g[0] for g in gradients], [g[1] for g in gradients], before=self.noise)
        return float(losses.mean()), [gradient.mean(axis=0) for gradient in gradients]

    def accuracy(self, points: Array, labels: Array) -> float:
        return float(np.mean((forward(self.weights, points)[-1][:, 0] > 0) == (labels > 0.5)))


def stream(bits: np.random.PCG64, rank: int) -> np.random.Generator:
    """Random generator of a rank. Jumps commute with draws, so that all ranks resume from the state of rank 0."""
    return np.random.Generator(bits.jumped(rank))


def with_bias(x: Array) -> Array:
    """A column of ones after the others."""
    biased = np.ones((*x.shape[:-1], x.shape[-1] + 1))
    biased[..., :-1] = x
    return biased


def forward(weights: list[Array], points: Array) -> list[Array]:
    """Forward pass of points (..., count, 2): the inputs of every layer, and last the logits."""
    values = [with_bias(points)]
    for weight in weights[:-1]:
        values.append(with_bias(np.tanh(values[-1] @ weight)))
    return [*values, values[-1] @ weights[-1]]


def loss_and_gradients(weights: list[Array], points: Array, labels: Array) -> tuple[Array, list[Array]]:
    """Backpropagation of a batch or of several at once: points (..., count, 2) and labels (..., count).

    Returns the mean logistic loss (...), and its gradient for every layer (..., rows, columns).
    """
    *values, logits = forward(weights, points)
    z = logits[..., 0]
    losses = np.mean(np.logaddexp(0, z) - labels * z, axis=-1)
    delta = ((1 / (1 + np.exp(-z)) - labels) / labels.shape[-1])[..., None]
    gradients = [values[-1].swapaxes(-1, -2) @ delta]
    for weight, value, before in zip(weights[:0:-1], values[:0:-1], values[-2::-1], strict=True):
        delta = (delta @ weight.T * (1 - value**2))[..., :-1]
        gradients.insert(0, before.swapaxes(-1, -2) @ delta)
    return losses, gradients
