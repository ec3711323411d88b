"""Pairs of jobs as rows of their own: a round of m jobs and P pairs, of which each job runs in one at most."""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from allocation.arrays import Bools, Floats, Ints
from allocation.decision import Decision
from allocation.floor import Floor
from allocation.limits import Limits
from allocation.pairs import Pairs, rate_beside
from allocation.problem import Problem


@dataclass(frozen=True, eq=False)
class Rows:
    """A round of m + P rows; members (m + P, 2) are the jobs of each, a job alone twice the same.

    barred (m + P, K): pairs are together only where they have a share of it.
    """

    problem: Problem
    decision: Decision
    members: Ints
    barred: Bools

    @classmethod
    def of(cls, problem: Problem, decision: Decision) -> Self:
        """Give the jobs, and the pairs that share out time or share GPUs now."""
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
        """How many of the rows are jobs alone."""
        return int((self.members[:, 0] == self.members[:, 1]).sum())

    def apart(self, picks: Ints) -> tuple[Ints, Ints]:
        """Picks (m + P,) as the configuration of each job (m,), or -1, and who shares it (m,), or -1."""
        of_job, mate = np.full(self.jobs, -1), np.full(self.jobs, -1)
        first, second = self.members[picks >= 0].T
        of_job[first] = of_job[second] = picks[picks >= 0]
        two = first != second
        mate[first[two]], mate[second[two]] = second[two], first[two]
        return of_job, mate

    def floor(self, floor: Floor, mate: Ints) -> Floor:
        """Give GPUs that a pair holds to its row; it needs CPUs and memory for both."""
        first, second = self.members.T
        together = np.full(len(mate) + 1, -1)
        held = np.flatnonzero((first != second) & (mate[first] == second))
        together[first[held]] = together[second[held]] = held
        alone = first == second
        needs = [
            np.where(alone, each[first], each[first] + each[second])
            for each in (floor.cpus_per_gpu, floor.memory_per_gpu_mib)
        ]
        return replace(
            floor,
            holder=np.where(together[floor.holder] >= 0, together[floor.holder], floor.holder),
            cpus_per_gpu=needs[0],
            memory_per_gpu_mib=needs[1],
            uneven=floor.uneven[first] & floor.uneven[second],
        )

    def limits(self, limits: Limits) -> Limits:
        """Let a pair's GPUs count for the groups of both, once."""
        first, second = (limits.group[side] for side in self.members.T)
        known = (second[:, :, None] == first[:, None, :]).any(axis=2)
        return replace(limits, group=np.hstack([first, np.where(known, -1, second)]))

    def without_busy(self, running: Bools) -> Problem:
        """Let those rows (m + P,) hold nothing whose jobs run in another."""
        busy = np.zeros(self.jobs, dtype=np.bool_)
        busy[self.members[running]] = True
        return replace(self.problem, held=np.where(busy[self.members].any(axis=1) & ~running, -1, self.problem.held))


def _with_those_of_now(problem: Problem, pairs: Pairs | None) -> Pairs:
    """Pairs that share GPUs now may have lost their share, and hold them until they are given to others."""
    pairs = pairs or Pairs.none(problem.rate.shape[1])
    first = np.flatnonzero(problem.mate > np.arange(len(problem.mate)))
    now = np.column_stack([first, problem.mate[first]])
    ours, known = np.sort(pairs.rows, axis=1), len(problem.mate)
    new = ~np.isin(now @ [known, 1], ours @ [known, 1])
    return Pairs(
        np.vstack([ours, now[new]]), np.vstack([pairs.shares, np.zeros((int(new.sum()), pairs.shares.shape[1]))])
    )


def _widened(problem: Problem, pairs: Ints) -> Problem:
    """Pairs are rows like that of their first job, at the rate of both, relative to what they would do alone."""
    m, (first, second) = len(problem.weight), pairs.T
    wide = replace(problem, mate=np.full(m, -1)).subset(np.append(np.arange(m), first))
    rate = sum(rate_beside(problem, a, b) / problem.base_rate[a, None] for a, b in ((first, second), (second, first)))
    together, shares_now = problem.mate[first] == second, problem.mate >= 0
    return replace(
        wide,
        rate=np.vstack([problem.rate, rate]),
        base_rate=np.append(problem.base_rate, np.ones(len(first))),
        received_s=np.vstack([problem.received_s, _received_s(problem, pairs)]),
        held=np.append(np.where(shares_now, -1, problem.held), np.where(together, problem.held[first], -1)),
        locked=np.append(problem.locked & ~shares_now, together & (problem.locked[first] | problem.locked[second])),
        pairs=np.zeros((0, 2), dtype=np.int64),
        pair_received_s=np.zeros((0, len(problem.capacity))),
    )


def _received_s(problem: Problem, pairs: Ints) -> Floats:
    """Seconds (P, n) for which these pairs were together."""
    known = {
        tuple(pair): s for pair, s in zip(np.sort(problem.pairs, axis=1).tolist(), problem.pair_received_s, strict=True)
    }
    received = np.zeros((len(pairs), len(problem.capacity)))
    for row, pair in enumerate(pairs.tolist() if known else []):
        received[row] = known.get(tuple(pair), 0.0)
    return received
