"""Round mechanism: shares of time and time received become the assignment of a round, with leases.

Gavel's (its sections 3.2 and 5) with few restarts: jobs are ranked by all time received, not by type, every job has a
first turn before others have their second, and a job keeps its GPUs for a lease that its restart is a small part of, or
to its end if that is near. Gavel's own is in `simulation.rules.gavel`.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np

from allocation.decision import Decision
from allocation.problem import LEASE, Problem
from allocation.quotas import Quotas
from allocation.remaining_capacity import RemainingCapacity
from allocation.restart_cost import repays_two_restarts
from allocation.types import Bools, Floats, Ints

TIE = 6
"""Decimals to which priorities and shares are compared: a solver's rounding errors must not decide."""
RESET_ROUNDS = 16 / 3  # Gavel's 1920 s between allocations, in rounds of 360 s
LEAST_PART = 0.1
"""Fraction of an equal share of the cluster that each job is owed at least, however small its weight."""

TOGETHER = 1024
"""Candidates looked at before those that no longer fit are dropped."""
Candidates = tuple[Ints, Ints]
"""Rows, and a configuration for each."""


def reset_due(*, changed: bool, since_s: float | None, turn_s: float) -> bool:
    """Whether shares are due to be set anew: jobs or nodes changed, and not within the last turns; None: never set.

    A turn is the time between two rounds without events, or the minimum run time if that is longer.
    """
    return since_s is None or (changed and since_s >= RESET_ROUNDS * turn_s)


def least_run_s(*, round_s: float, min_run_s: float) -> float:
    """Seconds for which a job keeps its GPUs once it runs: half a round, or the minimum run time if that is longer.

    Rounds that events cause may come a second after each other: without it jobs would take turns by the second. Half of
    the round, for a job that starts a while after the round that placed it may leave in the next one.
    """
    return max(round_s / 2, min_run_s)


def priorities(problem: Problem, shares: Floats, *, round_s: float) -> Floats:
    r"""Priority (m, n) of each job on each type: its share over the rounds that it received, there and in all.

    .. math::
        \pi_{ij} = T \min\left(\frac{X_{ij}}{T/2 + t_{ij}},\ \frac{\sum_j X_{ij}}{T/2 + \sum_j t_{ij}}\right)

    T is the round's length, the half of it an initial credit; t = received_s (m, n); X_ij sums the shares of the
    configurations that use type j. By the second term a job that ran on one type does not come first on the next.
    """
    on_type = shares @ (problem.usage > 0).T.astype(float)
    there = on_type / (problem.received_s + round_s / 2)
    in_all = on_type.sum(axis=1) / (problem.received_s.sum(axis=1) + round_s / 2)
    priority: Floats = round_s * np.minimum(there, in_all[:, None])
    return priority


def turns_owed(problem: Problem, shares: Floats, *, round_s: float) -> Floats:
    r"""Turns (m,) that waiting jobs are owed over their whole lives; 0 below one, or where one had its turn.

    .. math::
        o_i = \left\lfloor \frac{A_i\, x_i - G_i / g_i}{\max(T, L_i)} \right\rfloor, \qquad
        x_i = \max\left(\sum_j X_{ij},\ 0.1 \min\left(1, \frac{\sum c}{m_i\,g_i}\right)\right)

    T is the round's length, L that of a lease, A the age, G / g the time run in its smallest gangs, m_i the jobs as old
    or older: those that keep coming do not make a gang wait longer. Times received are forgotten when shares are set
    anew, and with them what a job of a small share waited: without this it might wait forever. A waiting job is served
    after at most 1/x turns and one for each job that is owed more.
    """
    equal = np.minimum(1, problem.capacity.sum() / (problem.as_old * problem.base_gpus))
    owed_s = problem.age_s * np.maximum(shares.sum(axis=1), LEAST_PART * equal)
    turn_s = np.maximum(round_s, LEASE * problem.restart_s)
    turns = np.floor((owed_s - problem.attained_gpu_s / problem.base_gpus) / turn_s)
    waits = (problem.held < 0) & ~problem.received_s.any(axis=1)
    owed: Floats = np.where(waits, np.maximum(turns, 0), 0)
    return owed


def realise(
    problem: Problem, decision: Decision, assignment: "RoundAssignment", *, round_s: float, settled: Ints | None = None
) -> Ints:
    """Give each job its configuration for this round (m,), -1 for none: Gavel's round mechanism, with gang reservation.

    Locked jobs keep what they hold; `settled` (m,) configurations come next; then, for shares, waiting jobs by the
    turns that they are owed, jobs within their lease, those that have never run, on whatever type, and all jobs by
    falling priority (ties: share, least time received in all, the team furthest behind, what is held, speed-up), work
    conserving: GPUs left over go to jobs without a share, each in its fastest configuration, and a job leaves its lease
    for idle ones on which it gains two restarts. A decision that is an assignment is taken as it is, configurations
    already held first. What does not fit, exceeds a quota or is not allowed is skipped.

    A waiting job that lacks only GPUs whose locks end reserves the type (n,): no other job starts there, so that the
    locks run out and a gang is not starved by a stream of smaller jobs.
    """
    if settled is not None:
        assignment.fill(_held_first(problem, settled, assignment.allowed))
    if decision.shares is None:
        assignment.fill(_held_first(problem, _assignment_of(decision), assignment.allowed))
        return assignment.given
    owed = turns_owed(problem, decision.shares, round_s=round_s)
    queue = _Queue(problem, decision.shares, priorities(problem, decision.shares, round_s=round_s), owed)
    assignment.fill(queue.order(assignment.allowed & (owed > 0)[:, None]))
    leased = np.where(problem.leased, problem.held, -1)
    assignment.fill(_held_first(problem, leased, assignment.allowed))
    new = problem.attained_gpu_s <= 0
    assignment.fill(queue.order(assignment.allowed & ((decision.shares > 0) | new[:, None])))
    if not assignment.remaining.full:
        assignment.fill(queue.order(assignment.spare & (decision.shares <= 0)))
        _leave_for_idle_gpus(problem, assignment, leased)
    return assignment.given


@dataclass(frozen=True, eq=False)
class RoundAssignment:
    """Assignment of a round under construction: a configuration per row (m,), and the capacity that is left.

    allowed (m, K) are the configurations that a row may get.
    """

    rows: Ints
    remaining: RemainingCapacity
    allowed: Bools

    @classmethod
    def start(
        cls, problem: Problem, quotas: Quotas, *, barred: Bools | None = None, reserved: Bools | None = None
    ) -> Self:
        """Assign nothing yet but what locked jobs hold.

        Configurations that are `barred` (m, K) are not allowed; types that are `reserved` (n,) are only for jobs that
        hold the configuration already.
        """
        allowed = problem.rate > 0 if barred is None else (problem.rate > 0) & ~barred
        rows = np.full(len(problem.weight), -1, dtype=np.int64)
        return cls(rows, RemainingCapacity(problem, quotas, reserved), allowed).with_locked(problem)

    def with_locked(self, problem: Problem) -> Self:
        """Assign to locked jobs what they hold, whatever the quotas: they are never stopped."""
        for i in np.flatnonzero(problem.locked).tolist():
            self.give(i, int(problem.held[i]))
            self.remaining.take(i, int(problem.held[i]), until_s=float(problem.unlock_s[i]))
        return self

    @property
    def open(self) -> Bools:
        """Rows (m,) without a configuration that may still get one."""
        return np.asarray(self.rows == -1)

    @property
    def spare(self) -> Bools:
        """Configurations (m, K) that open rows may still get from what is left."""
        return self.allowed & self.open[:, None] & self.remaining.holds()

    @property
    def given(self) -> Ints:
        """The configuration of each row (m,), -1 for none."""
        return np.maximum(self.rows, -1)

    def give(self, i: int, k: int) -> None:
        """Record configuration k for row i."""
        self.rows[i] = k

    def fill(self, wanted: Candidates) -> None:
        """Serve candidates first-fit in order; those that no longer fit are dropped, unless they may reserve GPUs."""
        rows, columns = wanted
        while rows.size and not self.remaining.full:
            if not self.remaining.awaited:
                open_to_them = self.open[rows] & self.remaining.holds()[columns]
                rows, columns = rows[open_to_them], columns[open_to_them]
            done = self._fill_some(rows[:TOGETHER].tolist(), columns[:TOGETHER].tolist())
            rows, columns = rows[done:], columns[done:]

    def _fill_some(self, rows: list[int], columns: list[int]) -> int:
        """Serve candidates while all that fitted at the beginning still fits; return how many were looked at."""
        remaining = self.remaining
        most, _ = remaining.still_open()
        for seen, (i, k) in enumerate(zip(rows, columns, strict=True), 1):
            if self.rows[i] != -1:
                continue
            if not remaining.fits(i, k):
                remaining.reserve(i, k)
                continue
            remaining.take(i, k)
            self.give(i, k)
            if not remaining.has(most):
                return seen
        return len(rows)


@dataclass(frozen=True, eq=False)
class _Queue:
    """Order in which jobs are served with configurations."""

    problem: Problem
    shares: Floats
    priority: Floats
    owed: Floats
    """Turns (m,) that waiting jobs are owed."""

    def order(self, candidates: Bools) -> Candidates:
        """Candidates (m, K) as rows and configurations, the most urgent first."""
        i, k = candidates.nonzero()
        priority, share = self._least(self.priority, i, k), self.shares[i, k]
        speed = self.problem.rate[i, k] / self.problem.base_rate[i]
        elsewhere = self.problem.held[i] != k
        received = (self.problem.attained_gpu_s / self.problem.base_gpus)[i]
        ran = (self.problem.attained_gpu_s > 0)[i]
        behind_s = self.problem.team_backlog_s[i]
        keys = [
            -self.owed[i],
            ran,
            -priority.round(TIE),
            -share.round(TIE),
            received.round(),
            -behind_s.round(),
            elsewhere,
            -speed,
        ]  # then the row
        turn = np.lexsort(keys[::-1])
        return i[turn], k[turn]

    def _least(self, by_type: Floats, i: Ints, k: Ints) -> Floats:
        """Lowest value over the types of a configuration, for gangs of mixed types."""
        lone = self.problem.usage.argmax(axis=0)
        values: Floats = by_type[i, lone[k]]
        for j, mixed in enumerate((self.problem.usage > 0) & (np.arange(len(self.problem.usage))[:, None] != lone)):
            values = np.where(mixed[k], np.minimum(values, by_type[i, j]), values)
        return values


def _leave_for_idle_gpus(problem: Problem, assignment: RoundAssignment, leased: Ints) -> None:
    """Move jobs that hold a leased configuration (m,) to idle GPUs where that gains more than two restarts."""
    rows = np.flatnonzero((leased >= 0) & (assignment.rows == leased) & ~problem.locked)
    better = assignment.allowed[rows] & repays_two_restarts(problem, rows) & assignment.remaining.holds()
    for i, columns in zip(rows[better.any(axis=1)].tolist(), better[better.any(axis=1)], strict=True):
        fitting = [k for k in np.flatnonzero(columns).tolist() if assignment.remaining.fits(i, k)]
        if fitting:
            fastest = max(fitting, key=lambda k: float(problem.rate[i, k]))
            assignment.remaining.give_back(i, int(leased[i]))
            assignment.remaining.take(i, fastest)
            assignment.give(i, fastest)


def _held_first(problem: Problem, assignment: Ints, allowed: Bools) -> Candidates:
    """Assigned configurations that are allowed, those already held first."""
    rows = np.flatnonzero(assignment >= 0)
    rows = rows[allowed[rows, assignment[rows]]]
    rows = rows[np.argsort(assignment[rows] != problem.held[rows], kind="stable")]
    return rows, assignment[rows]


def _assignment_of(decision: Decision) -> Ints:
    if decision.assignment is None:
        raise ValueError("a decision has neither shares nor picks")
    return decision.assignment
