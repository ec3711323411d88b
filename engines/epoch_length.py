"""Length of an epoch in samples, from the lines of a progress file: tells what is left where batches differ. Pure.

A training that has run with several batches needs, for the rest, as many steps as its present batch makes of an epoch;
the mean steps of an epoch so far would tell another number. Epochs may be whole numbers: only lines at which the epoch
has changed count, from the first such line on.
"""

from typing import NamedTuple


class _Mark(NamedTuple):
    """A line at which the epoch had changed, and the samples read by then."""

    epoch: float
    samples: float


class EpochLength:
    """Reads the lines of one attempt in order; a line without a batch is taken to have that of the line before."""

    def __init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self._step: int | None = None
        self._batch: int | None = None
        self._epoch: float | None = None
        self._samples = 0.0
        self._first: _Mark | None = None
        self._latest: _Mark | None = None

    def read(self, step: int, epoch: float, batch: int | None) -> None:
        """Read a line; one with an earlier step or epoch, or the first with a batch, starts the count anew."""
        names_first_batch = self._batch is None and batch is not None
        if self._step is None or step < self._step or epoch < (self._epoch or 0.0) or names_first_batch:
            self._forget()
            self._step, self._epoch = step, epoch
        self._batch = batch or self._batch
        self._samples += (step - self._step) * (self._batch or 1)
        if epoch != self._epoch:
            self._latest = _Mark(epoch, self._samples)
            self._first = self._first or self._latest
        self._step, self._epoch = step, epoch

    def steps_left(self, epochs: float) -> float | None:
        """Steps with the present batch until so many epochs are over; None: too little has been read."""
        first, latest = self._first, self._latest
        if first is None or latest is None or latest.epoch == first.epoch:
            return None
        of_epoch = (latest.samples - first.samples) / (latest.epoch - first.epoch)
        samples = of_epoch * (epochs - latest.epoch) - (self._samples - latest.samples)
        return max(samples, 0.0) / (self._batch or 1)
