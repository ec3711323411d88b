"""Training applications as they were recorded: step times by placement and batch, progress and noise by epoch.

Format: the files of `apps/`, one folder per application (tables of step times per GPU type, of epochs per batch).
"""

import csv
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.interpolate import LinearNDInterpolator, interp1d

from estimation.goodput import BatchLimits

Floats = NDArray[np.float64]
SIA = Path(os.environ.get("MOTLEY_REFERENCE", Path(__file__).parents[3] / "shared" / "reference")) / "sia"
MOST_NODES = 16
EPOCHS = {"bert": 2, "cifar10": 100, "imagenet": 90, "deepspeech2": 80, "yolov3": 50, "ncf": 10}
MOST_PER_GPU = {("deepspeech2", "rtx"): 57}
"""Where less than the largest batch of the table fits."""

needs_reference = pytest.mark.skipif(not SIA.exists(), reason="the reference data is not there")


@cache
def golden() -> dict[str, Any]:
    """What the original computed."""
    content: dict[str, Any] = json.loads((SIA / "golden.json").read_text())
    return content


def recorded_values(name: str) -> list[dict[str, Any]]:
    """A list of them; empty where the reference data is not there."""
    return list(golden()[name]) if SIA.exists() else []


@dataclass(frozen=True)
class StepTimes:
    """Seconds of a step, and of averaging in it, of one application on one GPU type."""

    placements: Mapping[str, Floats]
    """Placement → rows of (samples per GPU, step, averaging)."""
    scattered: Floats
    """Rows of (nodes, GPUs, samples per GPU, step, averaging)."""

    @classmethod
    @cache
    def of(cls, application: str, gpu_type: str) -> "StepTimes":
        rows = _rows(application, f"placements-{gpu_type}.csv")
        placements = {name: _columns(rows, TIMES, placement=name) for name in {row["placement"] for row in rows}}
        means = [_mean(rows, key) for key in sorted({_size(row["placement"], row["local_bsz"]) for row in rows})]
        scalability = _columns(_rows(application, f"scalability-{gpu_type}.csv"), ("num_nodes", "num_replicas", *TIMES))
        return cls(placements, np.vstack([np.array(means), scalability]))

    def at(self, placement: Sequence[int], local_batch: float) -> tuple[float, float]:
        """Interpolated; on placements not recorded, between those of as many nodes and GPUs."""
        held = [gpus for gpus in placement if gpus]
        name = min("".join(map(str, held[n:] + held[:n])) for n in range(len(held)))
        if name in self.placements:
            table = self.placements[name]
            step, averaging = interp1d(table[:, 0], table[:, 1:], axis=0)(local_batch)
        else:
            between = LinearNDInterpolator(self.scattered[:, :3], self.scattered[:, 3:])
            step, averaging = between([min(len(held), MOST_NODES), sum(held), local_batch])[0]
        assert np.isfinite(step), f"{placement} with {local_batch} lies outside of what was recorded"
        return float(step), float(averaging)

    def most_per_gpu(self, placement: Sequence[int]) -> float:
        """The largest batch that was recorded on so many GPUs."""
        tables = [table for name, table in self.placements.items() if sum(map(int, name)) == sum(placement)]
        rows = np.vstack(
            [table[:, :1] for table in tables] + [self.scattered[self.scattered[:, 1] == sum(placement), 2:3]]
        )
        return float(rows.max())

    @property
    def per_gpu(self) -> tuple[float, float]:
        """The least and the largest batch of a placement."""
        batches = np.concatenate([table[:, 0] for table in self.placements.values()])
        return float(batches.min()), float(batches.max())


TIMES = ("local_bsz", "step_time", "sync_time")


def _rows(application: str, name: str) -> list[dict[str, str]]:
    with (SIA / "apps" / application / name).open() as file:
        return list(csv.DictReader(file))


def _columns(rows: Iterable[Mapping[str, str]], names: Sequence[str], **where: str) -> Floats:
    chosen = (row for row in rows if all(row[name] == value for name, value in where.items()))
    return np.array([[float(row[name]) for name in names] for row in chosen])


def _size(placement: str, local_batch: str) -> tuple[int, int, float]:
    return len(placement), sum(map(int, placement)), float(local_batch)


def _mean(rows: Iterable[Mapping[str, str]], size: tuple[int, int, float]) -> list[float]:
    alike = _columns([row for row in rows if _size(row["placement"], row["local_bsz"]) == size], TIMES[1:])
    return [*size, *alike.mean(axis=0)]


@dataclass(frozen=True)
class Epochs:
    """What an application's training had come to after each epoch, by batch (rows: epochs)."""

    by_batch: Mapping[int, Floats]
    """Batch → rows of (progress, iteration, squared norm, variance); the first is the initial batch."""

    @classmethod
    @cache
    def of(cls, application: str) -> "Epochs":
        files = (SIA / "apps" / application).glob("validation-*.csv")
        sizes = sorted(int(file.stem.split("-")[1]) for file in files)
        names = ("progress", "iteration", "grad_sqr", "grad_var")
        return cls({size: _columns(_rows(application, f"validation-{size}.csv"), names) for size in sizes})

    def progress(self, epoch: int) -> float:
        """Steps of the initial batch by the end of so many epochs: the least over the batches."""
        return 0.0 if epoch == 0 else float(min(table[epoch - 1, 0] for table in self.by_batch.values()))

    def at(self, batch: float, epoch: int) -> Floats:
        """Progress, iteration, squared norm and variance, between the batches recorded."""
        sizes = list(self.by_batch)
        result: Floats = interp1d(sizes, [self.by_batch[size][epoch] for size in sizes], axis=0)(batch)
        return result


def limits_of(application: str, gpu_type: str) -> BatchLimits:
    """The batches that the application may have on that type."""
    sizes = list(Epochs.of(application).by_batch)
    least, most = StepTimes.of(application, gpu_type).per_gpu
    most_per_gpu = MOST_PER_GPU.get((application, gpu_type), int(most))
    return BatchLimits(initial=sizes[0], most=sizes[-1], most_per_gpu=most_per_gpu, least_per_gpu=int(least))
