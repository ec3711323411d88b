r"""Long leases, and reservations for jobs that have waited long, by conservative backfilling of one job per GPU type.

A job whose size is fixed keeps its GPUs for a lease after its start, or to its end if that is within 25 restarts:

.. math::
    L_i = \min(25\, R_i\, e^{N_i},\ \max(25\, R_i,\ H))

R is the time of a restart and N the number of restarts so far: jobs are stopped ever more rarely, as long as their
leases are shorter than the horizon H. Longer ones make short jobs wait for hours where others run for days.

A waiting job is due once it has waited c times as long as it takes in all where it is fastest:

.. math::
    A_i - \frac{G_i}{g_i} > \frac{c}{w_i} \left(\frac{G_i}{g_i} + r_i\right)

and its team is behind its share, if any is. Jobs that are due start before all others, those first that have waited for
the largest multiple of that time, also on GPUs of jobs beyond their lease. If a job lacks GPUs that others keep for
their leases, the idle GPUs of the type on which it would be done first are kept for it [1]_, for one job per type.

References
----------
.. [1] Mu'alem and Feitelson, IEEE TPDS 2001, "Utilization, Predictability, Workloads, and User Runtime Estimates in
   Scheduling the IBM SP2 with Backfilling".
"""

from dataclasses import dataclass, field
from typing import Self

import numpy as np

from allocation.problem import LEASE, Problem
from allocation.types import Bools, Floats, Ints

MOST_RESTARTS = 20
"""Restarts that lengthen a lease: the power of more might overflow."""
APART_S = 60.0
"""Backlog of a team, in seconds of the whole cluster, from which teams without one have no job that is due."""
DONE_FIRST_S = 1e-3
"""Least time for which a job is thought to wait for GPUs that it lacks."""
MOST_SERVED = 1000
"""Due jobs that a round serves: they are served one after the other, and 100,000 would take longer than the program."""


@dataclass(frozen=True, eq=False)
class Reservations:
    """Configurations (m,) in which due jobs start, -1: none; idle GPUs (n,) kept for the due row kept_for (n,), or -1.

    keeps_s (m,) are the seconds for which jobs keep what they hold, locked or within their leases; 0: they may leave.
    """

    starts: Ints
    kept: Ints
    kept_for: Ints
    keeps_s: Floats

    def fixed(self, problem: Problem) -> Problem:
        """The problem in which what is reserved is held and locked."""
        held = np.where(self.starts >= 0, self.starts, problem.held)
        return problem.changed(locked=problem.locked | (self.keeps_s > 0) | (self.starts >= 0), held=held)


def leases_s(problem: Problem, *, growth: float, horizon_s: float) -> Floats:
    """Seconds (m,) of the lease of each job; 0 for elastic ones, which change their size as it pays."""
    fewest = np.where(problem.rate > 0, problem.replicas, np.inf).min(axis=1)
    rigid = np.where(problem.rate > 0, problem.replicas, 0).max(axis=1) <= fewest
    first_s = LEASE * problem.restart_s
    grown_s = first_s * growth ** np.minimum(problem.restarts, MOST_RESTARTS)
    lease_s: Floats = np.where(rigid, np.minimum(grown_s, np.maximum(first_s, horizon_s)), 0)
    return lease_s


def keep_until_s(problem: Problem, *, growth: float, horizon_s: float) -> Floats:
    """Seconds (m,) from now for which each job keeps what it holds; 0: it may be stopped."""
    held = problem.held >= 0
    lease_s = leases_s(problem, growth=growth, horizon_s=horizon_s)
    rate = np.take_along_axis(problem.rate, np.maximum(problem.held, 0)[:, None], axis=1)[:, 0]
    left_s = np.divide(problem.remaining_steps, rate, out=np.full(len(rate), np.inf), where=rate > 0)
    ends_soon = (lease_s > 0) & (left_s > 0) & (left_s <= LEASE * problem.restart_s)
    of_lease = np.where(ends_soon, left_s, np.minimum(np.maximum(lease_s - problem.held_s, 0), left_s))
    of_lock = np.where(problem.locked, np.minimum(problem.unlock_s, left_s), 0)
    return np.where(held, np.maximum(of_lease, of_lock), 0)


def waited_parts(problem: Problem, left_s: Floats) -> Floats:
    """Time waited (m,) as a multiple of the time that each job takes, left_s (m,) of it to come, times its weight."""
    ran_s = problem.attained_gpu_s / problem.base_gpus
    parts: Floats = problem.job_weight * (problem.age_s - ran_s) / np.maximum(ran_s + left_s, DONE_FIRST_S)
    return parts


def due_jobs(problem: Problem, left_s: Floats, *, patience: float, by_team: bool) -> Bools:
    """Jobs (m,) that are due; by_team: only of teams that are behind their share, if any is."""
    backlog_s = problem.team_backlog_s
    apart = by_team and backlog_s.max(initial=0) > APART_S
    behind = backlog_s > 0 if apart else np.ones(len(backlog_s), dtype=np.bool_)
    due: Bools = (problem.held < 0) & behind & (waited_parts(problem, left_s) > patience)
    return due


@dataclass(frozen=True)
class ReservationRules:
    """Patience c, growth e and horizon H; a patience or a growth of 0 turns reservations or leases off.

    by_team: only teams that are behind their share, if any is, have jobs that are due.
    """

    patience: float = 1.0
    growth: float = 2.0
    horizon_s: float = 900.0
    by_team: bool = True


def reserve(problem: Problem, left_s: Floats, usable: Bools, rules: ReservationRules) -> Reservations:
    """Reserve for the jobs that are due, with left_s (m,) seconds to go where they are fastest.

    usable (m, K) are the configurations that each job may have.
    """
    keeps_s = np.where(problem.locked, problem.unlock_s, 0.0)
    if rules.growth:
        keeps_s = keep_until_s(problem, growth=rules.growth, horizon_s=rules.horizon_s)
    stays = problem.locked | (keeps_s > 0)
    room = _Room.of(problem, stays, keeps_s)
    if rules.patience:
        due = np.flatnonzero(due_jobs(problem, left_s, patience=rules.patience, by_team=rules.by_team))
        parts = waited_parts(problem, left_s)
        for i in due[np.argsort(-parts[due], kind="stable")][:MOST_SERVED].tolist():
            room.serve(i, np.flatnonzero(usable[i]))
    return Reservations(room.starts, room.kept, room.kept_for, keeps_s)


@dataclass(eq=False)
class _Room:
    """GPUs that due jobs may have: those that nobody keeps for a lease. Mutable, and private to this module."""

    problem: Problem
    free: Ints
    """GPUs (n,) that are idle or may be taken, less those given to due jobs."""
    idle: Ints
    """GPUs (n,) without a holder, less those given."""
    ends_s: Floats
    """When the GPUs of each job that keeps its own come free, ascending."""
    freed: Ints
    """How many of each type (n, jobs) have come free by then."""
    starts: Ints
    kept: Ints = field(init=False)
    kept_for: Ints = field(init=False)

    def __post_init__(self) -> None:
        self.kept = np.zeros_like(self.free)
        self.kept_for = np.full_like(self.free, -1)

    @classmethod
    def of(cls, problem: Problem, stays: Bools, keeps_s: Floats) -> Self:
        """Room beside the jobs that stay (m,), for keeps_s (m,) seconds."""
        staying = np.flatnonzero(stays)
        staying = staying[np.argsort(keeps_s[staying], kind="stable")]
        holding = problem.held[problem.held >= 0]
        return cls(
            problem=problem,
            free=problem.capacity - problem.usage[:, problem.held[staying]].sum(axis=1),
            idle=np.maximum(problem.capacity - problem.usage[:, holding].sum(axis=1), 0),
            ends_s=keeps_s[staying],
            freed=problem.usage[:, problem.held[staying]].cumsum(axis=1),
            starts=np.full(len(problem.held), -1),
        )

    def serve(self, i: int, columns: Ints) -> None:
        """Start a due job where it is done first, or keep idle GPUs of that type for it."""
        waits_s = np.array([self._wait_s(k) for k in columns.tolist()])
        steps = self.problem.remaining_steps[i]
        takes_s = (steps if np.isfinite(steps) else 0.0) / self.problem.rate[i, columns]
        best = int((waits_s + takes_s).argmin())
        k, uses = int(columns[best]), self.problem.usage[:, columns[best]]
        if waits_s[best] <= 0:
            self.starts[i] = k
            self.free, self.idle = self.free - uses, np.maximum(self.idle - uses, 0)
        elif np.isfinite(waits_s[best]) and (self.kept_for[uses > 0] < 0).all():
            self.kept_for[uses > 0] = i
            self.kept[uses > 0] = np.minimum(self.idle, uses)[uses > 0]
            self.free = np.where(uses > 0, 0, self.free)

    def _wait_s(self, k: int) -> float:
        """Seconds until configuration k fits; infinite: never."""
        lacks = self.problem.usage[:, k] - self.free
        short = np.flatnonzero(lacks > 0).tolist()
        last = max((int(self.freed[j].searchsorted(lacks[j])) for j in short), default=-1)
        if last == len(self.ends_s):
            return float(np.inf)
        return max(float(self.ends_s[last]), DONE_FIRST_S) if short else 0.0
