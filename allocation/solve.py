"""The only door to a solver: HiGHS, through SciPy."""

from dataclasses import dataclass
from enum import StrEnum
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import Bounds, LinearConstraint, OptimizeResult, linprog, milp
from scipy.sparse import csr_array

from allocation.arrays import Floats, Ints


class SolverFailed(RuntimeError):  # noqa: N818
    """The solver has no feasible answer."""


class Status(StrEnum):
    """How an answer came about."""

    OPTIMAL = "optimal"
    STOPPED = "stopped"  # a limit was reached; feasible, and the gap is known
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
) -> Solution:
    r"""Give the best answer, or the best one found within the time limit.

    .. math::
        \max_x\ \textstyle\sum_v \text{objective}_v\, x_v \quad\text{s.t.}\quad
        \text{rows}\, x \le \text{upper}, \qquad 0 \le x \le \text{most}

    Parameters
    ----------
    objective, most : (v,) float, and a bound on each variable (or one for all).
    rows, upper : (r, v) sparse or dense, and (r,) float.
    integrality : (v,) int, 1 where x must be whole; None: a linear program, and only then there are duals.
    time_limit_s, gap : seconds, and the relative gap at which an integer program may stop.

    Raises
    ------
    SolverFailed
        Infeasible, unbounded, or no feasible answer when time ran out.
    """
    c, b = np.asarray(objective, float), np.asarray(upper, float)
    matrix: Any = csr_array(rows)
    at_most = np.broadcast_to(np.asarray(most, float), c.shape)
    options: Any = {} if time_limit_s is None else {"time_limit": time_limit_s}
    result: OptimizeResult
    began = perf_counter()
    if integrality is None:
        between: Any = np.column_stack([np.zeros(c.size), at_most])
        result = linprog(-c, matrix, b, bounds=between, options=options)
    else:
        rule = LinearConstraint(matrix, ub=b)
        options["mip_rel_gap"] = gap
        result = milp(-c, constraints=rule, bounds=Bounds(0, at_most), integrality=integrality, options=options)
    return _solution(result, c, b, perf_counter() - began)


_STATUS = {0: Status.OPTIMAL, 1: Status.STOPPED}  # SciPy's codes; every other means that there is no answer


def _solution(result: OptimizeResult, c: Floats, b: Floats, seconds: float) -> Solution:
    if result.status not in _STATUS or result.x is None:
        raise SolverFailed(result.message)
    dual_bound = getattr(result, "mip_dual_bound", None)
    marginals = result.ineqlin.marginals if dual_bound is None else np.zeros(b.size)
    return Solution(
        x=result.x,
        value=float(c @ result.x),
        bound=float(-result.fun if dual_bound is None else -dual_bound),
        duals=-marginals,
        seconds=seconds,
        status=_STATUS[result.status],
    )
