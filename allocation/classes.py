"""Rows that are alike, so that one can stand for all of its kind."""

from dataclasses import dataclass

import numpy as np

from allocation.arrays import Floats, Ints


@dataclass(frozen=True, eq=False)
class Kinds:
    """C kinds among m rows: first (C,) the first row of a kind, count (C,) its rows; of_row (m,) the kind of each."""

    first: Ints
    count: Ints
    of_row: Ints


def alike(rows: Floats) -> Kinds:
    """Group equal rows (m, d), to the last bit; kinds are in the order in which they appear."""
    bits = np.ascontiguousarray(rows + 0.0).view(f"V{rows.dtype.itemsize * rows.shape[1]}")  # -0.0 is 0.0
    _, first, of_row, count = np.unique(bits.ravel(), return_index=True, return_inverse=True, return_counts=True)
    turn = np.argsort(first)
    position = np.empty_like(turn)
    position[turn] = np.arange(turn.size)
    return Kinds(first[turn], count[turn], position[of_row])
