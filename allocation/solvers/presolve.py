"""Presolve: group identical rows into classes, and compact rows to their feasible columns."""

from dataclasses import dataclass

import numpy as np

from allocation.types import Floats, Ints


@dataclass(frozen=True, eq=False)
class JobClasses:
    """C classes of m rows: first (C,) row of each class, count (C,) of its rows; of_row (m,) the class of a row."""

    first: Ints
    count: Ints
    of_row: Ints


def group_identical(rows: Floats) -> JobClasses:
    """Group identical rows (m, d), compared bit by bit; classes are in the order of their first rows."""
    bits = np.ascontiguousarray(rows + 0.0).view(f"V{rows.dtype.itemsize * rows.shape[1]}")  # -0.0 is 0.0
    _, first, of_row, count = np.unique(bits.ravel(), return_index=True, return_inverse=True, return_counts=True)
    turn = np.argsort(first)
    position = np.empty_like(turn)
    position[turn] = np.arange(turn.size)
    return JobClasses(first[turn], count[turn], position[of_row])


def compact_feasible(value: Floats) -> tuple[Ints, Floats]:
    """Compact each row of value (m, K) to its feasible columns, those above 0: up to V of them, after column 0.

    Returns names and values (m, 1 + V): the index of each column in (nothing, columns), and the value there. Column 0,
    to have nothing, has the value 0 and fills up rows with fewer feasible columns.
    """
    is_possible = value > 0
    held = is_possible.sum(axis=1)[:, None]
    place = np.arange(1 + held.max(initial=0))
    filled = (place > 0) & (place <= held)
    names, values = np.zeros(filled.shape, dtype=np.int64), np.zeros(filled.shape)
    names[filled], values[filled] = is_possible.nonzero()[1] + 1, value[is_possible]
    return names, values
