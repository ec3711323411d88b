"""Space sharing in a round: pairs of jobs as rows of their own; each job runs alone or in one pair at most."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np

from allocation.decision import Decision, Pairs
from allocation.inventory import Inventory
from allocation.problem import Problem, SpaceSharing, sharing_of
from allocation.quotas import Quotas
from allocation.remaining_capacity import RemainingCapacity
from allocation.rounds.mechanism import RoundAssignment
from allocation.types import Bools, Floats, Ints

OUT = -2
"""In place of a configuration: a job of this row runs in another row."""


@dataclass(frozen=True, eq=False)
class PairRows:
    """Round of m + P rows, jobs and pairs; members (m + P, 2) are the jobs of each row, a job alone is named twice.

    barred (m + P, K): pairs share GPUs only in the configurations of which they have a share.
    """

    problem: Problem
    decision: Decision
    members: Ints
    barred: Bools

    @classmethod
    def of(cls, problem: Problem, decision: Decision) -> Self:
        """Rows of all jobs, and of the pairs that have a share or share GPUs now."""
        pairs, m = _with_those_of_now(problem, decision.pairs), len(problem.weight)
        shares = np.zeros((m, pairs.shares.shape[1])) if decision.shares is None else decision.shares
        barred = np.zeros((m + len(pairs), shares.shape[1]), dtype=np.bool_)
        barred[m:] = pairs.shares <= 0
        return cls(
            problem=_widened(problem, pairs.rows),
            decision=replace(decision, shares=np.vstack([shares, pairs.shares]), pairs=None),
            members=np.vstack([np.arange(m).repeat(2).reshape(m, 2), pairs.rows]),
            barred=barred,
        )

    @property
    def jobs(self) -> int:
        """Number of rows that are jobs alone."""
        return int((self.members[:, 0] == self.members[:, 1]).sum())

    def apart(self, assignment: Ints) -> tuple[Ints, Ints]:
        """Picks (m + P,) as the configuration of each job (m,), or -1, and who shares it (m,), or -1."""
        of_job, mate = np.full(self.jobs, -1), np.full(self.jobs, -1)
        first, second = self.members[assignment >= 0].T
        of_job[first] = of_job[second] = assignment[assignment >= 0]
        two = first != second
        mate[first[two]], mate[second[two]] = second[two], first[two]
        return of_job, mate

    def inventory(self, inventory: Inventory, mate: Ints) -> Inventory:
        """Inventory in which a pair holds its GPUs as one row; it needs CPUs and memory for both jobs."""
        first, second = self.members.T
        together = np.full(len(mate) + 1, -1)
        held = np.flatnonzero((first != second) & (mate[first] == second))
        together[first[held]] = together[second[held]] = held
        alone = first == second

        def of_both(each: Floats) -> Floats:
            amount: Floats = np.where(alone, each[first].T, (each[first] + each[second]).T).T
            return amount

        return replace(
            inventory,
            holder=np.where(together[inventory.holder] >= 0, together[inventory.holder], inventory.holder),
            cpus_per_gpu=of_both(inventory.cpus_per_gpu),
            memory_per_gpu_mib=of_both(inventory.memory_per_gpu_mib),
            uneven=inventory.uneven[first] & inventory.uneven[second],
            row_booked=None if inventory.row_booked is None else of_both(inventory.row_booked),
            demands=None,  # of two jobs that share GPUs nobody knows what more CPUs gain
        )

    def quotas(self, quotas: Quotas) -> Quotas:
        """Quotas in which a pair's GPUs count for the groups of both jobs, once, and by type for the first's team."""
        first, second = (quotas.group[side] for side in self.members.T)
        known = (second[:, :, None] == first[:, None, :]).any(axis=2)
        by_type = quotas.by_type and quotas.by_type.of_rows(self.members[:, 0])
        return replace(quotas, group=np.hstack([first, np.where(known, -1, second)]), by_type=by_type)

    def start(self, quotas: Quotas, *, barred: Bools, reserved: Bools | None = None) -> "PairAssignment":
        """Begin to assign, as `RoundAssignment.start`."""
        rows = np.full(len(self.members), -1, dtype=np.int64)
        remaining = RemainingCapacity(self.problem, quotas, reserved)
        allowed = (self.problem.rate > 0) & ~barred
        return PairAssignment(rows, remaining, allowed, self.members, self._rows_of).with_locked(self.problem)

    @cached_property
    def _rows_of(self) -> dict[int, Ints]:
        """By job, all rows that it is in."""
        rows = dict[int, list[int]]()
        for row, jobs in enumerate(self.members.tolist()):
            for job in jobs:
                rows.setdefault(job, []).append(row)
        return {job: np.array(of_job) for job, of_job in rows.items()}

    def without_busy(self, running: Bools) -> Problem:
        """Problem in which rows (m + P,) whose jobs run in another row hold nothing."""
        busy = np.zeros(self.jobs, dtype=np.bool_)
        busy[self.members[running]] = True
        return replace(self.problem, held=np.where(busy[self.members].any(axis=1) & ~running, -1, self.problem.held))


@dataclass(frozen=True, eq=False)
class PairAssignment(RoundAssignment):
    """Assignment of a round whose rows are jobs and pairs: a job that is assigned in one row is out of its others."""

    members: Ints
    rows_of: dict[int, Ints]

    def give(self, i: int, k: int) -> None:
        """Record configuration k for row i, and take its jobs out of all other rows."""
        for job in self.members[i].tolist():
            self.rows[self.rows_of[job]] = OUT
        self.rows[i] = k


def _with_those_of_now(problem: Problem, pairs: Pairs | None) -> Pairs:
    """Add the pairs that share GPUs now: without a share, they hold them until others get them."""
    pairs = pairs or Pairs.none(problem.rate.shape[1])
    mate = sharing_of(problem).mate
    first = np.flatnonzero(mate > np.arange(len(mate)))
    now = np.column_stack([first, mate[first]])
    ours, known = np.sort(pairs.rows, axis=1), len(mate)
    new = ~np.isin(now @ [known, 1], ours @ [known, 1])
    return Pairs(
        np.vstack([ours, now[new]]), np.vstack([pairs.shares, np.zeros((int(new.sum()), pairs.shares.shape[1]))])
    )


def _widened(problem: Problem, pairs: Ints) -> Problem:
    """Append a row per pair: that of its first job, at the sum of the rates of both relative to the average GPU.

    There are no leases and no first turns: a job joins another on its GPUs, and leaves it, without a restart of the
    other.
    """
    m, (first, second), sharing = len(problem.weight), pairs.T, sharing_of(problem)
    wide = replace(problem, sharing=None).subset(np.append(np.arange(m), first))
    rate = sum(rate_beside(problem, a, b) / problem.base_rate[a, None] for a, b in ((first, second), (second, first)))
    together, shares_now = sharing.mate[first] == second, sharing.mate >= 0
    return replace(
        wide,
        rate=np.vstack([problem.rate, rate]),
        base_rate=np.append(problem.base_rate, np.ones(len(first))),
        restart_s=np.zeros(m + len(first)),
        attained_gpu_s=np.maximum(wide.attained_gpu_s, 1),
        received_s=np.vstack([problem.received_s, _received_s(sharing, pairs)]),
        held=np.append(np.where(shares_now, -1, problem.held), np.where(together, problem.held[first], -1)),
        locked=np.append(problem.locked & ~shares_now, together & (problem.locked[first] | problem.locked[second])),
    )


def _received_s(sharing: SpaceSharing, pairs: Ints) -> Floats:
    """Seconds (P, n) for which these pairs shared GPUs."""
    known = {
        tuple(pair): s for pair, s in zip(np.sort(sharing.pairs, axis=1).tolist(), sharing.pair_received_s, strict=True)
    }
    received = np.zeros((len(pairs), sharing.pair_received_s.shape[1]))
    for row, pair in enumerate(pairs.tolist() if known else []):
        received[row] = known.get(tuple(pair), 0.0)
    return received


def rate_beside(problem: Problem, rows: Ints, mates: Ints) -> Floats:
    """Steps/s (P, K) of these rows in each configuration beside these mates; 0: the two cannot share GPUs."""
    sharing = sharing_of(problem)
    if not rows.size or not sharing.kept_rate.size:
        return np.zeros((len(rows), problem.rate.shape[1]))
    first, second = sharing.workload[rows], sharing.workload[mates]
    both = (first >= 0)[:, None] & (second >= 0)[:, None] & (problem.rate[mates] > 0)
    return np.where(both, problem.rate[rows] * sharing.kept_rate[first, second], 0)
