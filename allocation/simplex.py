"""Small dense linear programs, by the simplex method, with a proof of the answer.

What costs a solver called through SciPy milliseconds before it begins takes a tenth of one here.
"""

from dataclasses import dataclass

import numpy as np

from allocation.arrays import Floats, Ints

MOST_PIVOTS = 200
NOTHING = 1e-12
"""Entries that are nearer to 0 are rounding."""


@dataclass(frozen=True, eq=False)
class Corner:
    """x (v,), and duals (r,) that prove it to be best."""

    x: Floats
    duals: Floats


def best_corner(c: Floats, A: Floats, b: Floats, *, tolerance: float) -> Corner | None:
    r"""Give the best x of a program in which x = 0 is feasible; None where it is unbounded, or too hard for this.

    .. math::
        \max_x\ c\,x \quad\text{s.t.}\quad A\,x \le b, \qquad x \ge 0, \qquad\text{with } b \ge 0

    Parameters
    ----------
    c, A, b : (v,), (r, v) and (r,) float; b not less than 0.
    tolerance : by how much x may break a row, the duals a column, and the two differ in value.
    """
    r, v = A.shape
    tableau = np.empty((r + 1, v + 1))
    tableau[:r, :v], tableau[:r, v], tableau[r, :v], tableau[r, v] = A, b, -c, 0
    inside, outside = np.arange(v, v + r), np.arange(v)  # the variables; from v on, what each row leaves
    for _ in range(MOST_PIVOTS):
        j = int(tableau[r, :v].argmin())
        if tableau[r, j] >= -NOTHING:
            corner = _corner(tableau, inside, outside)
            return corner if _is_proven(corner, c, A, b, tolerance) else None
        i = _leaving(tableau, j)
        if i < 0:
            return None
        _pivot(tableau, i, j)
        inside[i], outside[j] = outside[j], inside[i]
    return None


def _leaving(tableau: Floats, j: int) -> int:
    """The row that stops variable j first, of equals the one that divides best; -1: none does."""
    column, limit = tableau[:-1, j], tableau[:-1, -1]
    ratio = np.full(len(column), np.inf)
    np.divide(limit, column, out=ratio, where=column > NOTHING)
    least = ratio.min(initial=np.inf)
    return -1 if least == np.inf else int(np.where(ratio <= least + NOTHING, column, 0).argmax())


def _pivot(tableau: Floats, i: int, j: int) -> None:
    """Exchange the variable of row i for that of column j."""
    pivot = tableau[i, j]
    row, column = tableau[i] / pivot, tableau[:, j].copy()
    tableau -= np.multiply.outer(column, row)
    tableau[i], tableau[:, j] = row, -column / pivot
    tableau[i, j] = 1 / pivot


def _corner(tableau: Floats, inside: Ints, outside: Ints) -> Corner:
    v = len(outside)
    x, duals = np.zeros(v), np.zeros(len(inside))
    x[inside[inside < v]] = np.maximum(tableau[:-1, -1][inside < v], 0)
    duals[outside[outside >= v] - v] = np.maximum(tableau[-1, :-1][outside >= v], 0)
    return Corner(x, duals)


def _is_proven(corner: Corner, c: Floats, A: Floats, b: Floats, tolerance: float) -> bool:
    value = float(c @ corner.x)
    return bool(
        (A @ corner.x <= b + tolerance).all()
        and (corner.duals @ A >= c - tolerance).all()
        and abs(value - float(b @ corner.duals)) <= tolerance * max(1, abs(value))
    )
