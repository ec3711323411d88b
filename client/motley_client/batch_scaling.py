r"""Tuned batches: how one is shared among GPUs, its gradient noise, the batch of most goodput, and the learning rate.

Standard library only. Of n gradients of equal parts of a batch, with the mean of their squared norms s and the squared
norm of their mean q, unbiased estimates of the variance of a batch's gradient and of the squared norm of the true
gradient are

.. math::
    v = \frac{s - q}{n - 1}, \qquad g = q - v

Of batches of M samples with throughput X(M) that one is the best which maximises goodput, with V the variance of the
gradient of one sample,

.. math::
    \frac{X(M)}{V + g M}

References
----------
.. [1] McCandlish et al., 2018, "An Empirical Model of Large-Batch Training", appendix A.1 (the estimates).
.. [2] Johnson et al., 2020, "AdaScale SGD: A User-Friendly Algorithm for Distributed Training", section 3 (the gain).
"""

import json
import os
from collections.abc import Iterable, Mapping
from math import isfinite, sqrt
from typing import Any, NamedTuple

from motley_client.training import TrainingError, batch_size, micro_batches

LR_SCALINGS = ("adascale", "sqrt", "linear", "none")
LEAST_MEASUREMENTS = 5
"""Before these the noise is not told: the first estimates may be far off."""
LEAST_GAIN = 1.05
"""Another batch must promise so many times the goodput of the present one: the estimates are no better than that."""


class BatchShare(NamedTuple):
    """The global batch, and how it is worked off: so many micro-batches a rank and step, of so many samples each."""

    total: int
    micro_batches: int
    samples: int


def share_batch(default: int, ranks: int) -> BatchShare:
    """The batch that Motley chose, else `default`, shared among so many ranks."""
    total, parts = batch_size(default), micro_batches()
    if total % (ranks * parts):
        raise TrainingError(
            f"{ranks} ranks cannot share a batch of {total} samples equally in {parts} parts each: "
            "choose a batch_size that every number of GPUs of the job divides, or allow it fewer numbers of GPUs."
        )
    return BatchShare(total, parts, total // (ranks * parts))


class BatchChoice(NamedTuple):
    """A batch that the GPUs can work off: samples of a step, micro-batches of a rank, and samples/s expected of it.

    Only the ratios between the samples/s of choices count.
    """

    total: int
    micro_batches: int
    samples_per_s: float


def batch_choices(ranks: int) -> list[BatchChoice]:
    """Batches among which the job may choose while it runs, that so many ranks can share; none if Motley tells none."""
    told = json.loads(os.environ.get("MOTLEY_BATCH_CHOICES") or "[]")
    choices = (BatchChoice(int(total), int(parts), float(rate)) for total, parts, rate in told)
    return [one for one in choices if one.total % (ranks * one.micro_batches) == 0]


def best_share(share: BatchShare, choices: Iterable[BatchChoice], noise: "GradientNoise") -> BatchShare:
    """The share of most goodput, by the noise of batches of the present share; that itself if none is much better."""
    by_total = {one.total: one for one in choices}
    if not by_total:
        return share
    present = min(by_total.values(), key=lambda one: abs(one.total - share.total))
    sample_var, ranks = noise.var * share.total, share.total // (share.micro_batches * share.samples)

    def goodput(choice: BatchChoice) -> float:
        below = sample_var + noise.sqr * choice.total
        return choice.samples_per_s / below if below > 0 else choice.samples_per_s / choice.total

    best = max(by_total.values(), key=goodput)
    if goodput(best) < LEAST_GAIN * goodput(present):
        return share
    return BatchShare(best.total, best.micro_batches, best.total // (ranks * best.micro_batches))


def batch_is_tuned() -> bool:
    """Whether Motley chooses the batch of this job, by the gradient noise that it reports."""
    return bool(os.environ.get("MOTLEY_BATCH_SIZE"))


class GradientNoise(NamedTuple):
    """Squared norm of the gradient, and its variance over batches of the size that was measured."""

    sqr: float
    var: float


def noise_of_parts(mean_of_sqr: Any, sqr_of_mean: Any, parts: int) -> tuple[Any, Any]:
    """Estimates of squared norm and variance from equal parts of one batch; numbers, or tensors of one number."""
    var = (mean_of_sqr - sqr_of_mean) / (parts - 1)
    return sqr_of_mean - var, var


class SmoothedNoise:
    """Fading means of both estimates: their ratio is what matters, and a single one says little.

    `smoothing` is the part that is kept at each measurement. Tensors stay on their device until `value` is asked for.
    Estimates that are not finite, as of a step that overflowed, do not count.
    """

    def __init__(self, smoothing: float = 0.95) -> None:
        self.smoothing = smoothing
        self._counted: Any = 0.0
        self._sqr: Any = 0.0
        self._var: Any = 0.0

    def add(self, sqr: Any, var: Any) -> None:
        counts = ((sqr - sqr == 0) & (var - var == 0)) * 1.0
        kept = 1 - (1 - self.smoothing) * counts
        self._counted = self._counted + counts
        self._sqr = kept * self._sqr + (1 - kept) * _finite(sqr)
        self._var = kept * self._var + (1 - kept) * _finite(var)

    @property
    def measurements(self) -> int:
        """How many count; waits for the GPU."""
        return int(self._counted)

    @property
    def value(self) -> GradientNoise | None:
        """The means, corrected for their start at 0; None: too few count."""
        if self.measurements < LEAST_MEASUREMENTS:
            return None
        weight = 1 - self.smoothing**self.measurements
        return GradientNoise(max(float(self._sqr) / weight, 0.0), max(float(self._var) / weight, 0.0))

    def scale_variance(self, factor: float) -> None:
        """Multiply the variance, as of batches of another size from here on."""
        self._var = self._var * factor

    def state_dict(self) -> dict[str, float]:
        return {"measurements": self.measurements, "sqr": float(self._sqr), "var": float(self._var)}

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        """Go on from a checkpoint; one whose numbers are not finite is left alone."""
        if isfinite(state["sqr"] + state["var"]):
            self._counted, self._sqr, self._var = float(state["measurements"]), state["sqr"], state["var"]


def _finite(value: Any) -> Any:
    """The value, 0 where it is not finite: 0 times infinity is no number."""
    if hasattr(value, "nan_to_num"):  # a tensor, for which nobody waits
        return value.nan_to_num(0.0, 0.0, 0.0)
    return value if isfinite(value) else 0.0


def learning_rate_factor(rule: str, batch: int, initial: int, noise: GradientNoise | None = None) -> float:
    """By what the learning rate of the initial batch is multiplied for this one.

    `adascale` is the number of initial steps that one step is worth: 1 where larger batches bring nothing, the ratio of
    the batches where the gradient is all noise; 1 as long as the noise is not known.
    """
    ratio = batch / initial
    if rule == "linear":
        return ratio
    if rule == "sqrt":
        return sqrt(ratio)
    if rule == "adascale":
        return _gain(ratio, noise) if noise else 1.0
    if rule == "none":
        return 1.0
    raise TrainingError(f"lr_scaling={rule!r} is not known: choose one of {', '.join(LR_SCALINGS)}.")


def _gain(ratio: float, noise: GradientNoise) -> float:
    """AdaScale's gain; `noise` is that of the present batch, `ratio` times as large as the initial one."""
    initial_var = noise.var * ratio
    above, below = initial_var + noise.sqr, noise.var + noise.sqr
    return above / below if below > 0 else 1.0
