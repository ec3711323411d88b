"""Linear and integer programs: the only door to HiGHS (through SciPy), and a dense simplex method for small programs.

A solver called through SciPy needs milliseconds before it begins; the dense simplex solves a small program in a tenth
of one, and its answer is used only where its own duals prove it.
"""

import os
import sys
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import scipy

from allocation.decision import Status
from allocation.types import Floats, Ints

SMALL = 4096
"""Entries of a dense linear program up to which the simplex method here is tried first."""

MOST_PIVOTS = 200
NOTHING = 1e-12
"""Entries that are nearer to 0 are rounding errors."""


class SolverFailed(RuntimeError):
    """The solver found no feasible solution, or none within the gap that was asked."""


@dataclass(frozen=True, eq=False)
class Solution:
    """Feasible solution: x (v,), its value, the bound on the value, and duals (r,), the gain per unit of `upper`."""

    x: Floats
    value: float
    bound: float
    duals: Floats
    seconds: float
    status: Status


def maximize(
    objective: npt.ArrayLike,
    rows: Any,
    upper: npt.ArrayLike,
    *,
    most: npt.ArrayLike = np.inf,
    integrality: Ints | None = None,
    time_limit_s: float | None = None,
    gap: float = 1e-4,
    tolerance: float = 1e-7,
    interior: bool = False,
) -> Solution:
    r"""Maximise a linear program; of an integer program, up to a proven gap.

    .. math::
        \max_x\ \textstyle\sum_v \text{objective}_v\, x_v \quad\text{s.t.}\quad
        \text{rows}\, x \le \text{upper}, \qquad 0 \le x \le \text{most}

    Parameters
    ----------
    objective, most : (v,) float, and a bound on each variable (or one for all).
    rows, upper : (r, v) sparse or dense, and (r,) float.
    integrality : (v,) int, 1 where x must be whole; None: a linear program, and only then there are duals.
    time_limit_s, gap : seconds, and the relative gap at which an integer program may stop.
    tolerance : by how much the solution of a linear program may violate a row, 1e-10 at least.
    interior : solve a linear program by an interior-point method, and go from there to a vertex.

    Raises
    ------
    SolverFailed
        Infeasible, unbounded, or time ran out before the answer was within the gap.
    """
    c, b = np.asarray(objective, float), np.asarray(upper, float)
    if not c.size:
        return Solution(np.zeros(0), 0.0, 0.0, np.zeros(b.size), 0.0, Status.OPTIMAL)
    if integrality is None and np.all(most == np.inf) and (corner := _at_once(c, rows, b, tolerance)):
        return corner
    matrix: Any = scipy.sparse.csr_array(rows)
    at_most = np.broadcast_to(np.asarray(most, float), c.shape)
    options: Any = {} if time_limit_s is None else {"time_limit": time_limit_s}
    began = perf_counter()
    if integrality is None:
        between: Any = np.column_stack([np.zeros(c.size), at_most])
        options |= {"primal_feasibility_tolerance": tolerance, "dual_feasibility_tolerance": tolerance}
        method: Literal["highs", "highs-ipm"] = "highs-ipm" if interior else "highs"
        return _relaxed(scipy.optimize.linprog(-c, matrix, b, bounds=between, method=method, options=options), began)
    rule, bounds = scipy.optimize.LinearConstraint(matrix, ub=b), scipy.optimize.Bounds(0, at_most)
    options["mip_rel_gap"] = gap
    found = scipy.optimize.milp(-c, constraints=rule, bounds=bounds, integrality=integrality, options=options)
    return _whole(found, b.size, gap, began)


def _at_once(c: Floats, rows: Any, b: Floats, tolerance: float) -> Solution | None:
    """Solution of a small dense program that is feasible at 0, if the simplex method finds and proves it."""
    if not isinstance(rows, np.ndarray) or rows.size > SMALL or not b.min(initial=0) >= 0:
        return None
    began = perf_counter()
    corner = best_corner(c, rows, b, tolerance=tolerance)
    if corner is None:
        return None
    value = float(c @ corner.x)
    return Solution(corner.x, value, value, corner.duals, perf_counter() - began, Status.OPTIMAL)


def _relaxed(result: "scipy.optimize.OptimizeResult", began: float) -> Solution:
    if result.status != 0:  # what a linear program holds when it is stopped need not be feasible
        raise SolverFailed(result.message)
    return Solution(
        x=result.x,
        value=float(-result.fun),
        bound=float(-result.fun),
        duals=-result.ineqlin.marginals,
        seconds=perf_counter() - began,
        status=Status.OPTIMAL,
    )


def _whole(result: "scipy.optimize.OptimizeResult", rows: int, gap: float, began: float) -> Solution:
    if result.status not in (0, 1) or result.x is None:  # SciPy's codes: optimal, and a limit reached
        raise SolverFailed(result.message)
    if result.status == 1 and not result.mip_gap <= gap:
        raise SolverFailed(f"the time limit came at a gap of {result.mip_gap:.2g}, where {gap:.2g} was asked")
    return Solution(
        x=result.x,
        value=float(-result.fun),
        bound=float(-result.mip_dual_bound),
        duals=np.zeros(rows),
        seconds=perf_counter() - began,
        status=Status.OPTIMAL,
    )


@dataclass(frozen=True, eq=False)
class Vertex:
    """Optimal vertex: x (v,), and duals (r,) that prove it optimal."""

    x: Floats
    duals: Floats


def best_corner(c: Floats, A: Floats, b: Floats, *, tolerance: float) -> Vertex | None:
    r"""Dense simplex method for a program in which x = 0 is feasible; None where it is unbounded or not proven.

    .. math::
        \max_x\ c\,x \quad\text{s.t.}\quad A\,x \le b, \qquad x \ge 0, \qquad\text{with } b \ge 0

    Parameters
    ----------
    c, A, b : (v,), (r, v) and (r,) float; b not less than 0.
    tolerance : by how much x may violate a row, the duals a column, and the two differ in value.
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
    """Ratio test: the row that limits variable j first, of equals the one with the largest pivot; -1: none does."""
    column, limit = tableau[:-1, j].tolist(), tableau[:-1, -1].tolist()  # NumPy's calls would take longer
    ratio = [most / pivot if pivot > NOTHING else np.inf for pivot, most in zip(column, limit, strict=True)]
    least = min(ratio, default=np.inf)
    pivots = [pivot if of <= least + NOTHING else 0.0 for pivot, of in zip(column, ratio, strict=True)]
    return -1 if least == np.inf else pivots.index(max(pivots))


def _pivot(tableau: Floats, i: int, j: int) -> None:
    """Pivot: exchange the basic variable of row i for the variable of column j."""
    pivot = tableau[i, j]
    row, column = tableau[i] / pivot, tableau[:, j].copy()
    tableau -= np.multiply.outer(column, row)
    tableau[i], tableau[:, j] = row, -column / pivot
    tableau[i, j] = 1 / pivot


def _corner(tableau: Floats, inside: Ints, outside: Ints) -> Vertex:
    v = len(outside)
    x, duals = np.zeros(v), np.zeros(len(inside))
    x[inside[inside < v]] = np.maximum(tableau[:-1, -1][inside < v], 0)
    duals[outside[outside >= v] - v] = np.maximum(tableau[-1, :-1][outside >= v], 0)
    return Vertex(x, duals)


def _is_proven(corner: Vertex, c: Floats, A: Floats, b: Floats, tolerance: float) -> bool:
    value = float(c @ corner.x)
    return bool(
        (A @ corner.x <= b + tolerance).all()
        and (corner.duals @ A >= c - tolerance).all()
        and abs(value - float(b @ corner.duals)) <= tolerance * max(1, abs(value))
    )


def divert_native_output(descriptor: int | None = None) -> None:
    """Keep standard output for what Python prints; lines that HiGHS prints there now and then go to this descriptor.

    None: they go nowhere, as of processes that write logs. A second call does nothing.
    """
    if sys.stdout.fileno() != 1:
        return
    sys.stdout.flush()
    ours, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere if descriptor is None else descriptor, 1)
    os.close(nowhere)
    sys.stdout = sys.__stdout__ = os.fdopen(ours, "w", encoding=sys.stdout.encoding, buffering=1)  # type: ignore[misc]
