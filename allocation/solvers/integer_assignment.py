r"""Integer assignment of one configuration per job: Lagrangian dual, primal heuristic, and HiGHS where a gap is left.

.. math::
    \max_{X \in \{0,1\}}\ \textstyle\sum_{ik} v_{ik} X_{ik} \quad\text{s.t.}\quad
    \textstyle\sum_k X_{ik} \le 1, \qquad \textstyle\sum_i \sum_k u_{jk} X_{ik} \le c_j

The Lagrangian dual (`allocation.solvers.lagrangian_dual`) bounds the value. The primal heuristic repairs the jobs'
responses at the best prices and fills up the capacity left; its optimality gap to the bound is certified.
Of up to 200 jobs that can use one GPU type each, dynamic programming tells whether HiGHS could find more.
`assign_with_incumbents` is the entrance for policies: locked jobs, a tie-break for incumbents, a scale-up limit.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from time import perf_counter

import numpy as np
import scipy

from allocation.decision import Decision, Status
from allocation.problem import Problem
from allocation.solvers.lagrangian_dual import SeparableProblem, solve_dual
from allocation.solvers.linear_program import SolverFailed, maximize
from allocation.time_budget import UNLIMITED, TimeBudget
from allocation.types import Bools, Floats, Ints

SMALL = 200
"""Up to so many jobs HiGHS proves optimality in a few hundredths of a second."""
MOST_STEPS = 2_000_000
"""Columns times GPUs beyond which dynamic programming takes longer than HiGHS."""
MOST_CHOICES = 200_000
"""Feasible columns beyond which HiGHS works for minutes before it looks at its time limit."""
GOLDEN = (5**0.5 - 1) / 2
"""The fractional parts of its multiples are spread evenly over 0 to 1, however many there are."""
EXACT = 1e-9
"""Relative gap that rounding errors still let one prove."""

TIE = 1e-7
"""Relative bonus of a held configuration: of equals the incumbent stays."""


@dataclass(frozen=True, eq=False)
class Assignment:
    """Assignment (m,) of a configuration or -1; its value, the dual bound, and prices (n,) per GPU."""

    assignment: Ints
    value: float
    bound: float
    prices: Floats
    seconds: float
    status: Status


def assign_with_incumbents(
    problem: Problem,
    gain: Floats,
    *,
    scale_up: float,
    gap: float,
    time_limit_s: float,
    objective: Callable[[float], float] = float,
    kept: Ints | int = 0,
) -> Decision:
    """Maximise total value with locked jobs, a tie-break for incumbents and a scale-up limit.

    Parameters
    ----------
    problem : Problem
        u = usage (n, K), c = capacity (n,) GPUs, base_replicas, most_replicas, held, locked (m,); its time limit.
    value : (m, K), of each configuration; infeasible unless positive.
    scale_up : at most so many times the replicas that jobs of its workload ever had; 0: no limit.
    gap, time_limit_s : optimality gap, relative to the objective, and seconds after which the primal heuristic's
        assignment is returned.
    objective : total value → the policy's objective; the value itself unless given.
    kept : (n,) GPUs of each type that no job gets in this round.
    """
    held, locked = problem.held, problem.locked
    stays = np.arange(problem.gpus.size) == held[:, None]
    worth = np.where(allowed(problem, scale_up) & ~locked[:, None], gain, 0)
    taken = problem.usage[:, held[locked]].sum(axis=1)
    best = solve_assignment(
        np.where(stays, worth * (1 + TIE), worth),
        problem.usage,
        problem.capacity - taken - kept,
        gap=gap,
        objective=objective,
        budget=TimeBudget.of(problem).at_most(time_limit_s),
    )
    assignment = np.where(locked, held, best.assignment)
    gained = gain[assignment >= 0, assignment[assignment >= 0]].sum()
    return Decision.of_assignment(
        assignment,
        prices=best.prices,
        objective=objective(gained),
        bound=objective(gained + best.bound - best.value),
        status=best.status,
        solve_seconds=best.seconds,
        value=worth,
    )


def oldest_first(problem: Problem, decision: Decision) -> Decision:
    """Break ties by age: permute the assignment within each group of interchangeable jobs, oldest job first.

    Jobs are interchangeable if their values (m, K) and the configurations that they hold are equal, and none is locked.
    """
    value, assignment = decision.value, decision.assignment
    if value is None or assignment is None:
        return decision
    own = np.where(problem.locked, np.arange(len(value)), -1)
    alike = _labels(np.column_stack([value, problem.held, own]))
    worth = np.where(assignment >= 0, np.take_along_axis(value, assignment[:, None], axis=1)[:, 0], -np.inf)
    ordered = np.empty_like(assignment)
    ordered[np.lexsort((-problem.age_s, alike))] = assignment[np.lexsort((-worth, alike))]
    return replace(decision, assignment=ordered)


def _labels(rows: Floats) -> Ints:
    """A number (m,) for each row, the same for equal rows."""
    order = np.lexsort(rows.T)
    ordered = rows[order]
    labels = np.empty(len(rows), dtype=np.int64)
    labels[order] = np.append(0, (ordered[1:] != ordered[:-1]).any(axis=1).cumsum())[: len(rows)]
    return labels


def allowed(problem: Problem, scale_up: float) -> Bools:
    """Configurations (m, K) that a job may have: feasible ones within the scale-up limit, and the one that it holds.

    The limit is `scale_up` times the replicas that jobs of its workload ever had, and not below its fewest.
    """
    most = (
        np.maximum(scale_up * problem.most_replicas, problem.base_replicas)
        if scale_up
        else np.ones(len(problem.weight)) * np.inf
    )
    stays = np.arange(problem.gpus.size) == problem.held[:, None]
    usable: Bools = (problem.rate > 0) & ((problem.replicas <= most[:, None]) | stays)
    return usable


def solve_assignment(
    value: Floats,
    usage: Ints,
    capacity: Ints,
    *,
    gap: float,
    objective: Callable[[float], float] = float,
    budget: TimeBudget = UNLIMITED,
) -> Assignment:
    """Maximise the total value of one configuration per job within an optimality gap, relative to the objective.

    Parameters
    ----------
    value : v (m, K), of a configuration for a job; infeasible unless positive.
    usage, capacity : u (n, K) and c (n,) GPUs.
    objective : the value → what the gap is relative to; the value itself, unless given.
    budget : when it is spent before the gap is reached, the primal heuristic's assignment counts, status `limit`.
    """
    began = perf_counter()
    there = ~(usage[capacity <= 0] > 0).any(axis=0)
    separable = SeparableProblem(value * there, usage, capacity.astype(float), np.ones(len(value), dtype=np.int64))
    priced = solve_dual(separable, budget=budget)
    columns, status = _filled(separable, separable.best_at(priced.prices), priced.prices), Status.OPTIMAL
    bound, near = priced.bound, EXACT if len(value) <= SMALL else gap
    worth = separable.weighted_sum(columns)
    if len(value) > SMALL and bound - worth > near * abs(objective(worth)):
        columns = max(columns, _filled(separable, _rounded(priced.mix), priced.prices), key=separable.weighted_sum)
    worth = separable.weighted_sum(columns)
    if len(value) <= SMALL and bound - worth > near * abs(objective(worth)):
        bound = min(bound, _best_on_one_type(separable))
    if bound - worth > near * abs(objective(worth)):
        relative = gap * abs(objective(worth)) / max(worth, 1e-300)
        columns, bound, status = _improved_by_highs(separable, columns, bound, gap=relative, budget=budget)
    worth = separable.weighted_sum(columns)
    prices = priced.prices if there.all() else _with_prices_of_full_types(separable, value, priced.prices)
    return Assignment(columns - 1, worth, max(bound, worth), prices, perf_counter() - began, status)


def _with_prices_of_full_types(separable: SeparableProblem, value: Floats, prices: Floats) -> Floats:
    """Prices of all types: of a type without capacity the lowest price at which no job prefers it.

    These are left out of the dual: each of hundreds of cuts would find one more job that prefers such a type.
    """
    prices, u = np.where(separable.capacity > 0, prices, 0.0), separable.u[:, 1:]
    columns = separable.best_at(prices)
    surplus = np.take_along_axis(separable.v, columns[:, None], axis=1)[:, 0] - prices @ separable.u[:, columns]
    for j in np.flatnonzero(separable.capacity <= 0):
        asked = u[j] > 0
        more = np.where(value[:, asked] > 0, value[:, asked] - surplus[:, None] - prices @ u[:, asked], 0)
        prices[j] = (more / u[j, asked]).max(initial=0)
    return prices


def _improved_by_highs(
    separable: SeparableProblem, columns: Ints, bound: float, *, gap: float, budget: TimeBudget
) -> tuple[Ints, float, Status]:
    """The better of this assignment and that of HiGHS, the better bound, and whether the gap was reached."""
    if budget.passed() or np.count_nonzero(separable.value > 0) > MOST_CHOICES:
        return columns, bound, Status.LIMIT
    try:
        found, bound_too = _by_highs(separable, gap=gap, time_limit_s=budget.left_s())
    except SolverFailed:
        return columns, bound, Status.LIMIT
    return max(columns, found, key=separable.weighted_sum), min(bound, bound_too), Status.OPTIMAL


def _rounded(mix: tuple[tuple[float, Ints], ...]) -> Ints:
    """Deterministic rounding of the fractional dual mix to one column per row, in proportion among identical rows."""
    answers = np.array([answer for _, answer in mix])
    turn = np.empty(answers.shape[1], dtype=np.int64)
    turn[np.lexsort(answers)] = np.arange(turn.size)
    until = np.cumsum([part for part, _ in mix])
    whose = np.searchsorted(until / until[-1], turn * GOLDEN % 1, side="right")
    rounded: Ints = answers[whose, np.arange(turn.size)]
    return rounded


def _repaired(separable: SeparableProblem, columns: Ints, prices: Floats) -> Ints:
    """Repair an over-capacity assignment: downgrade the jobs with the least loss of reduced value per freed GPU."""
    columns = columns.copy()
    reduced = separable.v - prices @ separable.u
    while ((over := separable.used(columns) - separable.capacity) > 0).any():
        j = int(over.argmax())
        alone = separable.u.sum(axis=0) == separable.u[j]
        freed = np.where(alone, separable.u[j, columns][:, None] - separable.u[j], 0)
        worth_now = np.take_along_axis(reduced, columns[:, None], axis=1)
        loss = np.where(freed > 0, (worth_now - reduced) / np.maximum(freed, 1), np.inf)
        instead = loss.argmin(axis=1)
        rows = np.arange(len(columns))
        cheapest = np.argsort(loss[rows, instead], kind="stable")
        enough = int(np.searchsorted(freed[cheapest, instead[cheapest]].cumsum(), over[j])) + 1
        giving = cheapest[:enough]
        columns[giving] = instead[giving]
    return columns


def _filled(separable: SeparableProblem, columns: Ints, prices: Floats) -> Ints:
    """Primal heuristic: repair, then upgrade the jobs that gain most reduced value by the capacity left."""
    columns = _repaired(separable, columns, prices)
    while True:
        left = separable.capacity - separable.used(columns)
        rows, wanted = _upgrades(separable, columns, prices, left)
        if not rows.size:
            return columns
        served = _first_fit(separable.u[:, wanted] - separable.u[:, columns[rows]], left)
        columns[rows[served]] = wanted[served]


def _upgrades(separable: SeparableProblem, columns: Ints, prices: Floats, left: Floats) -> tuple[Ints, Ints]:
    """Rows that gain from the capacity left, by falling gain in reduced value, and the column that each would take."""
    now, mine = np.take_along_axis(separable.v, columns[:, None], axis=1)[:, 0], separable.u[:, columns]
    reduced, best, wanted = now - prices @ mine, np.full(len(columns), -np.inf), np.zeros_like(columns)
    for k in range(1, separable.v.shape[1]):
        better = separable.v[:, k] > now
        if not better.any():
            continue
        types = np.flatnonzero(separable.u[:, k])
        better &= np.all(separable.u[types, k, None] - mine[types] <= left[types, None], axis=0)
        gain = np.where(better, separable.v[:, k] - prices @ separable.u[:, k] - reduced, -np.inf)
        wanted = np.where(gain > best, k, wanted)
        best = np.maximum(best, gain)
    rows = np.flatnonzero(wanted)
    rows = rows[np.argsort(-best[rows], kind="stable")]
    return rows, wanted[rows]


def _first_fit(extra: Floats, left: Floats) -> Ints:
    """Rows whose additional GPUs (n, r) fit, first-fit in order."""
    waiting, served = np.arange(extra.shape[1]), list[Ints]()
    while waiting.size:
        waiting = waiting[(extra[:, waiting] <= left[:, None]).all(axis=0)]
        fits = np.all(extra[:, waiting].cumsum(axis=1) <= left[:, None], axis=0)
        first = waiting[np.logical_and.accumulate(fits)]
        served.append(first)
        left = left - extra[:, first].sum(axis=1)
        waiting = waiting[first.size :]
    return np.concatenate(served) if served else waiting


def _best_on_one_type(separable: SeparableProblem) -> float:
    """Value of the best assignment if each row can use one type only, by dynamic programming over GPUs; else infinite.

    Where the primal heuristic has found it, nothing is left to HiGHS, which takes ten times as long to prove it.
    """
    is_used = (separable.value > 0) @ (separable.usage.T > 0)
    if (is_used.sum(axis=1) > 1).any() or np.count_nonzero(separable.value > 0) * separable.capacity.max() > MOST_STEPS:
        return np.inf
    best = 0.0
    for j in np.flatnonzero(is_used.any(axis=0)).tolist():
        by_gpus = np.zeros(int(separable.capacity[j]) + 1)
        gpus = separable.usage[j].tolist()
        for row in separable.value[is_used[:, j]].tolist():
            before = by_gpus.copy()
            for value, g in zip(row, gpus, strict=True):
                if value > 0 and g < len(before):
                    np.maximum(by_gpus[g:], before[: len(before) - g] + value, out=by_gpus[g:])
        best += float(by_gpus[-1])
    return best


def _by_highs(separable: SeparableProblem, *, gap: float, time_limit_s: float) -> tuple[Ints, float]:
    """Integer program by HiGHS: a column for each job, and the bound."""
    i, k = (separable.value > 0).nonzero()
    m = len(separable.value)
    rows, limits = scipy.sparse.csr_array(separable.usage[:, k].astype(float)), separable.capacity
    if i.size > np.unique(i).size:
        once = scipy.sparse.csr_array((np.ones(i.size), (i, np.arange(i.size))), shape=(m, i.size))
        rows, limits = scipy.sparse.vstack([once, rows]), np.concatenate([np.ones(m), limits])
    whole = np.ones(i.size, dtype=np.int64)
    worth = separable.value[i, k]
    found = maximize(worth, rows, limits, most=1, integrality=whole, time_limit_s=time_limit_s, gap=gap)
    columns = np.zeros(m, dtype=np.int64)
    chosen = found.x > 0.5
    columns[i[chosen]] = k[chosen] + 1
    return columns, found.bound
