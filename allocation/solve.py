"""The only door to a solver: HiGHS, through SciPy; small linear programs are solved here."""

from dataclasses import dataclass
from enum import StrEnum
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import Bounds, LinearConstraint, OptimizeResult, linprog, milp
from scipy.sparse import csr_array

from allocation.arrays import Floats, Ints
from allocation.simplex import best_corner

SMALL = 4096
"""Entries of a dense linear program that HiGHS need not be called for."""


class SolverFailed(RuntimeError):
    """The solver has no feasible answer, or none that is as near to the best as was asked."""


class Status(StrEnum):
    """How an answer came about."""

    OPTIMAL = "optimal"  # within the gap that was asked
    LIMIT = "limit"  # the best certified answer when the time limit came, perhaps not within the gap
    RULE = "rule"  # followed a rule; nothing was optimised
    FALLBACK = "fallback"  # the policy failed, and its stand-in answered


@dataclass(frozen=True, eq=False)
class Solution:
    """A feasible answer: x (v,), its value, the best bound on the value, and duals (r,), gain per unit of `upper`."""

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
) -> Solution:
    r"""Give the best answer; of an integer program, one that is proven to be within the gap.

    .. math::
        \max_x\ \textstyle\sum_v \text{objective}_v\, x_v \quad\text{s.t.}\quad
        \text{rows}\, x \le \text{upper}, \qquad 0 \le x \le \text{most}

    Parameters
    ----------
    objective, most : (v,) float, and a bound on each variable (or one for all).
    rows, upper : (r, v) sparse or dense, and (r,) float.
    integrality : (v,) int, 1 where x must be whole; None: a linear program, and only then there are duals.
    time_limit_s, gap : seconds, and the relative gap at which an integer program may stop.
    tolerance : by how much a linear program's answer may break a row, 1e-10 at least.

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
    matrix: Any = csr_array(rows)
    at_most = np.broadcast_to(np.asarray(most, float), c.shape)
    options: Any = {} if time_limit_s is None else {"time_limit": time_limit_s}
    began = perf_counter()
    if integrality is None:
        between: Any = np.column_stack([np.zeros(c.size), at_most])
        options |= {"primal_feasibility_tolerance": tolerance, "dual_feasibility_tolerance": tolerance}
        return _relaxed(linprog(-c, matrix, b, bounds=between, options=options), began)
    rule = LinearConstraint(matrix, ub=b)
    options["mip_rel_gap"] = gap
    found = milp(-c, constraints=rule, bounds=Bounds(0, at_most), integrality=integrality, options=options)
    return _whole(found, b.size, gap, began)


def _at_once(c: Floats, rows: Any, b: Floats, tolerance: float) -> Solution | None:
    """The answer to a small dense program that starts at 0, if it is found and proven."""
    if not isinstance(rows, np.ndarray) or rows.size > SMALL or not b.min(initial=0) >= 0:
        return None
    began = perf_counter()
    corner = best_corner(c, rows, b, tolerance=tolerance)
    if corner is None:
        return None
    value = float(c @ corner.x)
    return Solution(corner.x, value, value, corner.duals, perf_counter() - began, Status.OPTIMAL)


def _relaxed(result: OptimizeResult, began: float) -> Solution:
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


def _whole(result: OptimizeResult, rows: int, gap: float, began: float) -> Solution:
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
