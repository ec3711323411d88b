"""A round as a matrix of jobs and GPU types: share of time or speed on each type, and what was given. Pure."""

from math import ceil
from typing import NamedTuple

import numpy as np

from allocation.types import Floats, Ints
from scheduler_app.round.archive import Archived

LEVELS = 5
"""Shades of a cell."""
LEAST = 1e-6
"""Shares below are rounding errors of a solver."""


class Cell(NamedTuple):
    """One job on one GPU type."""

    gpu_type: str
    value: float
    """Share of time; of a policy without shares the speed, that on its fastest type being 1. 0: cannot run there."""
    gpus: int
    """GPUs of the type that the round gave it."""

    @property
    def level(self) -> int:
        return ceil(LEVELS * min(self.value, 1.0) - LEAST)


def has_shares(archived: Archived) -> bool:
    return archived.plan.decision.shares is not None


def cells_of(archived: Archived, row: int) -> list[Cell]:
    """A cell for each GPU type, in the order of the snapshot's types."""
    problem, k = archived.snapshot.problem, int(archived.plan.assignment[row])
    type_of = problem.usage.argmax(axis=0)
    shares, names = archived.plan.decision.shares, archived.snapshot.types
    types = len(names)
    values = _speeds(problem.rate[row], type_of, types) if shares is None else _sums(shares[row], type_of, types)
    given = problem.usage[:, k] if k >= 0 else np.zeros(types, dtype=int)
    return [Cell(name, float(value), int(gpus)) for name, value, gpus in zip(names, values, given, strict=True)]


def _sums(shares: Floats, type_of: Ints, types: int) -> Floats:
    sums = np.zeros(types)
    np.add.at(sums, type_of, np.where(shares > LEAST, shares, 0))
    return sums


def _speeds(rate: Floats, type_of: Ints, types: int) -> Floats:
    best = np.zeros(types)
    np.maximum.at(best, type_of, rate)
    return best / (best.max() or 1.0)
