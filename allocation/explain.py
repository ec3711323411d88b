"""Why jobs that could run do not run this round, with the numbers behind it."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from allocation.arrays import Bools, Floats, Ints
from allocation.decision import Decision
from allocation.floor import Floor
from allocation.limits import Limits
from allocation.problem import Problem
from allocation.reasons import Reason, ReasonCode
from allocation.rounds import priorities

_ORDER = list(ReasonCode)
TOLERANCE = 1e-6
"""Of a solver's prices: what is worth its price but for rounding was not outbid by it."""


def explain(
    problem: Problem, decision: Decision, floor: Floor, limits: Limits, *, picks: Ints, owner: Ints, round_s: float
) -> dict[int, tuple[Reason, ...]]:
    """Give every reason that holds for each row that does not run, structural before capacity.

    picks (m,) and owner (G,) are the round as it was planned.
    """
    outcome = _Outcome(problem, decision, floor, limits, picks, owner, round_s)
    return {i: outcome.reasons(i) for i in np.flatnonzero(picks < 0).tolist()}


def left_on_nodes(floor: Floor, owner: Ints) -> tuple[Floats, Floats, Floats]:
    """Give the GPUs, CPUs and MiB left on each node (N,) once each GPU (G,) has its owner."""
    taken, N = owner >= 0, len(floor.node_type)
    nodes, rows = floor.gpu_node[taken], owner[taken]
    return (
        np.bincount(floor.gpu_node[~taken], minlength=N).astype(float),
        floor.node_cpus - np.bincount(nodes, floor.cpus_per_gpu[rows], N),
        floor.node_memory_mib - np.bincount(nodes, floor.memory_per_gpu_mib[rows], N),
    )


def blocks_left(left: tuple[Floats, Floats, Floats], cpus_per_gpu: float, memory_per_gpu_mib: float) -> Floats:
    """Give how many GPUs each node (N,) could still feed with so many CPUs and so much memory each."""
    gpus, *beside = left
    needs = (cpus_per_gpu, memory_per_gpu_mib)
    fed = [np.floor(here / need + 1e-9) for here, need in zip(beside, needs, strict=True) if need > 0]
    blocks: Floats = np.minimum.reduce([gpus, *fed])
    return np.maximum(blocks, 0)


@dataclass(frozen=True, eq=False)
class _Outcome:
    """A planned round, and what can be read from it once for all rows."""

    problem: Problem
    decision: Decision
    floor: Floor
    limits: Limits
    picks: Ints
    owner: Ints
    round_s: float

    def reasons(self, i: int) -> tuple[Reason, ...]:
        found = [*self._quota(i), *self._capacity(i), *self._outbid(i)]
        found.sort(key=lambda reason: _ORDER.index(reason.code))
        return tuple(found) or (Reason(ReasonCode.NEXT_ROUND),)

    def _quota(self, i: int) -> list[Reason]:
        groups = [g for g in self.limits.group[i].tolist() if g >= 0]
        needed = int(self.problem.gpus[self._valid[i]].min()) if groups else 0
        caps = [(int(self.limits.most_gpus[g]), int(self._group_gpus[g])) for g in groups]
        return [
            Reason(ReasonCode.QUOTA, {"limit": most, "used": used, "needed": needed})
            for most, used in caps
            if used + needed > most
        ]

    def _capacity(self, i: int) -> list[Reason]:
        """What capacity stands in the way of the job; looked for once for all that ask the same."""
        floor = self.floor
        request = (self._valid[i].tobytes(), float(floor.cpus_per_gpu[i]), float(floor.memory_per_gpu_mib[i]))
        if request not in self._shortages:
            self._shortages[request] = self._shortage(i)
        return self._shortages[request]

    def _shortage(self, i: int) -> list[Reason]:
        """For each type that the job can use: too few GPUs are left, or they are in pieces that are too small.

        Where it would find room on one of them, it is not for want of GPUs that it waits.
        """
        found = []
        valid = np.flatnonzero((self.problem.rate[i] > 0) & ((self.problem.usage > 0).sum(axis=0) == 1))
        block = self._blocks(i)
        for j in np.flatnonzero(self.problem.usage[:, valid].any(axis=1)).tolist():
            of_type = valid[self.problem.usage[j, valid] > 0]
            k = int(of_type[self.problem.usage[j, of_type].argmin()])
            needed, left = int(self.problem.usage[j, k]), int(self._left[j])
            per_node = -(-int(self.problem.gpus[k]) // int(self.problem.nodes[k]))
            largest = int(block[self.floor.node_type == j].max(initial=0))
            where = {"gpu_type": j, "needed": needed, "left": left}
            if left < needed:
                found.append(Reason(ReasonCode.INSUFFICIENT_GPUS, where))
            elif largest < per_node:
                found.append(Reason(ReasonCode.FRAGMENTED, where | {"per_node": per_node, "largest_block": largest}))
            else:
                return []
        return found

    def _outbid(self, i: int) -> list[Reason]:
        """What others have over the job: a higher priority, or more gain from the same GPUs."""
        if self.decision.shares is not None:
            return self._behind(i)
        if self.decision.rival is not None:
            rival = int(self.decision.rival[i])
            return [Reason(ReasonCode.OUTBID, rival=rival)] if rival >= 0 else []
        return [] if self.decision.worth is None else self._too_dear(i, self.decision.worth[i])

    def _behind(self, i: int) -> list[Reason]:
        """The weakest winner, over the types that the job can use, if it stood before the job or beside it.

        Priority grows with the share, so that a share above `needed_share` would have stood before that winner. Who is
        locked is no winner: no share takes his GPUs.
        """
        winners = self._weakest_winners
        types = [j for j in np.flatnonzero(self._usable[i]).tolist() if winners[j] >= 0]
        stood = [(float(self._priority[winners[j], j]), j) for j in types]
        bar, j = min(stood, default=(-1.0, -1))
        if bar < self._priority[i, j] * (1 - TOLERANCE):
            return []
        numbers = {"gpu_type": j, "share": float(self._on_type[i, j]), "priority": float(self._priority[i, j])}
        winner = int(winners[j])
        bid = {"rival_share": float(self._on_type[winner, j]), "rival_priority": bar}
        numbers["needed_share"] = bar / float(self._priority_of_all_time[i, j])
        return [Reason(ReasonCode.OUTBID, numbers | bid, rival=winner)]

    def _too_dear(self, i: int, worth: Floats) -> list[Reason]:
        """The configuration that comes nearest to being worth the price of its GPUs, if none is worth it."""
        k = int(self._nearest_to_its_price[i])
        value, asked = float(worth[k]), float(self._asked[k])
        if value >= asked - TOLERANCE * abs(asked) or not worth.any():  # zeros: the policy was not asked about it
            return []
        where = {"gpu_type": int(self.problem.usage[:, k].argmax()), "gpus": int(self.problem.gpus[k])}
        return [Reason(ReasonCode.OUTBID, where | {"value": value, "price": asked})]

    @cached_property
    def _asked(self) -> Floats:
        """The price of the GPUs of each configuration (K,)."""
        asked: Floats = self.decision.prices @ self.problem.usage
        return asked

    @cached_property
    def _nearest_to_its_price(self) -> Ints:
        """Of each job (m,) the configuration whose price exceeds what it is worth by the least."""
        worth = np.zeros_like(self.problem.rate) if self.decision.worth is None else self.decision.worth
        nearest: Ints = np.where(self._valid, worth - self._asked, -np.inf).argmax(axis=1)
        return nearest

    @cached_property
    def _group_gpus(self) -> Ints:
        """GPUs in use by each group (L,), rows and others."""
        used = self.limits.used_gpus.copy()
        for i in np.flatnonzero(self.picks >= 0).tolist():
            groups = self.limits.group[i]
            used[groups[groups >= 0]] += self.problem.gpus[self.picks[i]]
        return used

    @cached_property
    def _valid(self) -> Bools:
        """Which configurations (m, K) a job may have."""
        return self.problem.rate > 0

    @cached_property
    def _shortages(self) -> dict[tuple[bytes, float, float], list[Reason]]:
        """What was found so far."""
        return {}

    @cached_property
    def _left(self) -> Ints:
        """GPUs of each type (n,) that nobody got."""
        left: Ints = np.bincount(self.floor.gpu_type[self.owner < 0], minlength=len(self.problem.capacity))
        return left

    @cached_property
    def _usable(self) -> Bools:
        """Which types (m, n) a job can use."""
        usable: Bools = (self.problem.rate > 0).astype(float) @ (self.problem.usage > 0).T.astype(float) > 0
        return usable

    @cached_property
    def _on_type(self) -> Floats:
        """Shares of each type (m, n)."""
        shares = np.zeros_like(self.problem.rate) if self.decision.shares is None else self.decision.shares
        on_type: Floats = shares @ (self.problem.usage > 0).T.astype(float)
        return on_type

    @cached_property
    def _priority(self) -> Floats:
        shares = np.zeros_like(self.problem.rate) if self.decision.shares is None else self.decision.shares
        return priorities(self.problem, shares, round_s=self.round_s)

    @cached_property
    def _priority_of_all_time(self) -> Floats:
        """The priority (m, n) that a job with all the time on a type would have."""
        credited = self.problem.received_s + self.round_s / 2
        most: Floats = credited.sum(axis=0) / credited
        return most

    @cached_property
    def _weakest_winners(self) -> Ints:
        """The running row of least priority on each type (n,) that could have been passed over; -1 for none."""
        running = np.flatnonzero((self.picks >= 0) & ~self.problem.locked)
        uses = self.problem.usage[:, self.picks[running]] > 0
        bids = np.where(uses, self._priority[running].T, np.inf)
        if not running.size:
            return np.full(len(uses), -1)
        weakest: Ints = np.where(uses.any(axis=1), running[bids.argmin(axis=1)], -1)
        return weakest

    @cached_property
    def _node_left(self) -> tuple[Floats, Floats, Floats]:
        """GPUs, CPUs and MiB left on each node (N,)."""
        return left_on_nodes(self.floor, self.owner)

    def _blocks(self, i: int) -> Floats:
        """How many GPUs each node (N,) could still give job i."""
        each = float(self.floor.cpus_per_gpu[i]), float(self.floor.memory_per_gpu_mib[i])
        return blocks_left(self._node_left, *each)
