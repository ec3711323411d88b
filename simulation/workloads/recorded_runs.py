"""Recorded runs of applications: step times by placement and batch, progress and gradient noise by epoch.

Format: the files that Sia publishes. `placements-TYPE.csv` and `scalability-TYPE.csv` hold the seconds of a step,
`validation-BATCH.csv` the state of training after each epoch.
"""

import csv
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Self

import numpy as np
import scipy

from allocation.types import Floats, Ints
from estimation.goodput import GradientNoise
from simulation.cluster import Placement

ANY = 1 << 30
MOST_NODES = 16
"""Largest number of nodes recorded."""
TIMES = ("local_bsz", "step_time", "sync_time")
EPOCH = ("progress", "iteration", "grad_sqr", "grad_var")


@dataclass(frozen=True, eq=False)
class StepTimes:
    """Seconds per step, and of gradient averaging in it, of one application on one GPU type."""

    placements: Mapping[str, Floats]
    """Placement → rows of (samples per GPU, step, averaging), by batch."""
    scattered: Floats
    """Rows of (nodes, GPUs, samples per GPU, step, averaging), means over placements first."""
    scalability: Floats
    """Rows of the same."""

    @classmethod
    def read(cls, folder: Path, gpu_type: str) -> Self:
        """Read the two tables of a GPU type."""
        placements: dict[str, list[list[float]]] = defaultdict(list)
        alike: dict[tuple[int, int, float], list[list[float]]] = defaultdict(list)
        for row in _read(folder / f"placements-{gpu_type}.csv"):
            name, (batch, *seconds) = row["placement"], (float(row[column]) for column in TIMES)
            placements[name].append([batch, *seconds])
            alike[len(name), sum(map(int, name)), batch].append(seconds)
        means = [[*size, *np.mean(alike[size], axis=0)] for size in sorted(alike)]
        scalability = _columns(_read(folder / f"scalability-{gpu_type}.csv"), ("num_nodes", "num_replicas", *TIMES))
        by_batch = {name: np.array(sorted(rows)) for name, rows in placements.items()}
        return cls(by_batch, np.vstack([np.array(means), scalability]), scalability)

    def at(self, placement: Placement, local_batch: int) -> tuple[float, float]:
        """Step times by interpolation; other placements use those with as many nodes and GPUs; nan: not recorded."""
        return self._at(_name(placement), local_batch)

    @cache  # noqa: B019 - there are few, and they live as long as the program
    def _at(self, name: str, local_batch: int) -> tuple[float, float]:
        step_s, averaging_s = self._of_batches(name, np.array([local_batch]))
        return float(step_s[0]), float(averaging_s[0])

    def of_batches(self, placement: Placement, local_batch: Ints) -> tuple[Floats, Floats]:
        """Step times of many batches, as `at`."""
        return self._of_batches(_name(placement), local_batch)

    def _of_batches(self, name: str, local_batch: Ints) -> tuple[Floats, Floats]:
        if name in self.placements:
            batch, *columns = self.placements[name].T
            step, averaging = (np.interp(local_batch, batch, column, np.nan, np.nan) for column in columns)
            return step, averaging
        size = min(len(name), MOST_NODES), sum(map(int, name))
        between = self._between(np.column_stack(np.broadcast_arrays(*size, local_batch)))
        return between[:, 0], between[:, 1]

    @cached_property
    def _between(self) -> "scipy.interpolate.LinearNDInterpolator":
        return scipy.interpolate.LinearNDInterpolator(self.scattered[:, :3], self.scattered[:, 3:])

    @cache  # noqa: B019 - as above
    def most_per_gpu(self, placement: Placement) -> int:
        """Largest batch per GPU recorded on the placement, else on at least as many nodes and GPUs; 0: none."""
        if (name := _name(placement)) in self.placements:
            return int(self.placements[name][:, 0].max())
        nodes, gpus, batch = self.scalability[:, :3].T
        return int(batch[(nodes >= len(placement)) & (gpus >= sum(placement))].max(initial=0))

    @cache  # noqa: B019 - as above
    def most_on(self, gpus: int) -> int:
        """Largest batch per GPU recorded on so many GPUs in any placement; unlimited if none."""
        tables = [table for name, table in self.placements.items() if sum(map(int, name)) == gpus]
        return max((int(table[:, 0].max()) for table in tables), default=ANY)

    @cached_property
    def per_gpu(self) -> tuple[int, int]:
        """Smallest and largest batch per GPU of all placements."""
        batches = np.concatenate([table[:, 0] for table in self.placements.values()])
        return int(batches.min()), int(batches.max())

    @cached_property
    def alone(self) -> float:
        """Approximate samples per second of one GPU."""
        return self.fastest_on(1)

    def fastest_on(self, gpus: int) -> float:
        """Largest batch on so many GPUs of one node over the longest step there."""
        table = self.placements[str(gpus)]
        return float(table[:, 0].max() / table[:, 1].max())

    def knows(self, placement: Placement) -> bool:
        """Whether steps were recorded on that very placement."""
        return _name(placement) in self.placements


@dataclass(frozen=True, eq=False)
class Epochs:
    """State of an application's training after each epoch, by batch."""

    batches: Floats
    """Recorded batches (B,), starting with the initial one."""
    tables: Floats
    """Progress, iteration, squared norm and variance (B, epochs, 4)."""

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read the tables of all batches."""
        sizes = sorted(int(file.stem.split("-")[1]) for file in folder.glob("validation-*.csv"))
        tables = [_columns(_read(folder / f"validation-{size}.csv"), EPOCH) for size in sizes]
        if not tables:
            raise ValueError("there is no validation-BATCH.csv")
        least = min(len(table) for table in tables)
        return cls(np.array(sizes, dtype=float), np.array([table[:least] for table in tables]))

    def progress(self, epoch: int) -> float:
        """Steps of the initial batch after so many epochs: the minimum over the batches."""
        return 0.0 if epoch == 0 else float(self.tables[:, epoch - 1, 0].min())

    def at(self, batch: float, epoch: int) -> Floats:
        """Progress, iteration, squared norm and variance (4,), interpolated between recorded batches."""
        place = min(int(np.searchsorted(self.batches, batch, side="right")) - 1, len(self.batches) - 2)
        low, high = self.batches[place], self.batches[place + 1]
        part = (batch - low) / (high - low)
        result: Floats = (1 - part) * self.tables[place, epoch] + part * self.tables[place + 1, epoch]
        return result

    def at_batches(self, batches: Ints, epoch: int) -> Floats:
        """Values (4, b) of many batches, as `at`."""
        columns = self.tables[:, epoch].T
        return np.array([np.interp(batches, self.batches, column) for column in columns])

    @cache  # noqa: B019 - as above
    def noise(self, batch: int, epoch: int) -> GradientNoise:
        """Gradient noise in an epoch with that batch."""
        _, _, sqr, var = self.at(batch, epoch).tolist()
        return GradientNoise(sqr, var)


def _name(placement: Sequence[int]) -> str:
    """Canonical name of a placement: its GPUs by node, the smallest rotation."""
    held = [gpus for gpus in placement if gpus]
    return min("".join(map(str, held[n:] + held[:n])) for n in range(len(held)))


def _read(file: Path) -> list[dict[str, str]]:
    with file.open() as lines:
        return list(csv.DictReader(lines))


def _columns(rows: Iterable[Mapping[str, str]], names: Sequence[str]) -> Floats:
    return np.array([[float(row[name]) for name in names] for row in rows]).reshape(-1, len(names))
