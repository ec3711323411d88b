"""Reasons for which jobs are not in a round, with the numbers behind them: structural before capacity."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import NamedTuple

import numpy as np

from allocation.decision import Decision
from allocation.inventory import Inventory
from allocation.problem import Problem
from allocation.quota_lending import NO_LIMIT, TypeQuotas
from allocation.quotas import Quotas
from allocation.remaining_capacity import remaining_after
from allocation.rounds.mechanism import priorities
from allocation.types import Bools, Floats, Ints

LEAST_RATE = 1e-12
"""Steps per second, in place of a division by zero."""
TOLERANCE = 1e-6
"""Relative tolerance of a solver's prices: a value within it of the price was not outbid."""


class ReasonCode(StrEnum):
    """Every reason that a queued job may be given; the first that holds is the headline."""

    HELD = "held"
    DEPENDENCY = "dependency"
    BEGIN_TIME = "begin_time"
    BUDGET = "budget"
    NO_SUCH_GPU = "no_such_gpu"
    GPU_MEMORY_TOO_SMALL = "gpu_memory_too_small"
    GANG_TOO_LARGE = "gang_too_large"
    NO_STORAGE = "no_storage"
    TEAM_LIMIT = "team_limit"
    MEMBER_LIMIT = "member_limit"
    ARRAY_LIMIT = "array_limit"
    QUOTA = "quota"
    NO_HEALTHY_NODE = "no_healthy_node"
    MAINTENANCE = "maintenance"
    RESERVED = "reserved"
    INSUFFICIENT_GPUS = "insufficient_gpus"
    FRAGMENTED = "fragmented"
    OUTBID = "outbid"
    AWAITING_RELEASE = "awaiting_release"
    NEXT_ROUND = "next_round"
    SET_ASIDE = "set_aside"


@dataclass(frozen=True)
class PendingReason:
    """A code, the numbers behind it, such as needed, free and used, and the row of the job that stood before it.

    holders are the jobs that get the GPUs.
    """

    code: ReasonCode
    numbers: Mapping[str, float] = field(default_factory=dict)
    rival: int | None = None
    holders: "Holders | None" = None


class Holder(NamedTuple):
    """A row that gets GPUs of a type in the round.

    left_s is how long it still runs there, infinite: not known; limit_s is what its time limit leaves, infinite: none.
    """

    row: int
    gpus: int
    left_s: float
    limit_s: float = np.inf


@dataclass(frozen=True)
class Holders:
    """The jobs that get GPUs of a type: their number and GPUs, and the first of them, those with the most GPUs first.

    `keep` of them keep what they hold in any case, the first for keep_s seconds more. Of the others: whether all run
    already, and the longest time left, the most GPUs, the smallest backlog of a team and the smallest weight.
    """

    jobs: int
    gpus: int
    gpus_in_all: int
    first: tuple[Holder, ...]
    keep: int
    keep_s: float
    all_run: bool
    longest_s: float
    most_gpus: int
    least_backlog_s: float
    least_weight: float


MOST_HOLDERS = 3
"""Jobs that are told one by one."""
_ORDER = list(ReasonCode)
LIMITS = ReasonCode.TEAM_LIMIT, ReasonCode.MEMBER_LIMIT
"""Whose limit each column of `Quotas.group` is."""


def explain(
    problem: Problem,
    decision: Decision,
    inventory: Inventory,
    quotas: Quotas,
    *,
    assignment: Ints,
    owner: Ints,
    round_s: float,
    rows: Iterable[int] | None = None,
) -> dict[int, tuple[PendingReason, ...]]:
    """Every reason that holds for each of these rows, or of all, that does not run, structural before capacity.

    assignment (m,) and owner (G,) are the round as it was planned.
    """
    planned = _PlannedRound(problem, decision, inventory, quotas, assignment, owner, round_s)
    waiting = np.flatnonzero(assignment < 0).tolist() if rows is None else [i for i in rows if assignment[i] < 0]
    return {i: planned.reasons(i) for i in waiting}


def left_on_nodes(inventory: Inventory, owner: Ints) -> tuple[Floats, Floats, Floats]:
    """GPUs, CPUs and MiB left on each node (N,) once each GPU (G,) has its owner."""
    taken, N = owner >= 0, len(inventory.node_type)
    nodes, rows = inventory.gpu_node[taken], owner[taken]
    cpus, memory_mib = inventory.booked(rows, nodes, inventory.goes_on(owner)[taken])
    return (
        np.bincount(inventory.gpu_node[~taken], minlength=N).astype(float),
        inventory.node_cpus - np.bincount(nodes, cpus, N),
        inventory.node_memory_mib - np.bincount(nodes, memory_mib, N),
    )


@dataclass(frozen=True, eq=False)
class _PlannedRound:
    """A planned round, and what is derived from it once for all rows."""

    problem: Problem
    decision: Decision
    inventory: Inventory
    quotas: Quotas
    assignment: Ints
    owner: Ints
    round_s: float

    def reasons(self, i: int) -> tuple[PendingReason, ...]:
        found = [*self._limits(i), *self._capacity(i), *self._outbid(i)]
        found.sort(key=lambda reason: _ORDER.index(reason.code))
        of_types = self._type_quotas(i)
        in_order = [*found, *of_types] if self._open[i].any() else [*of_types, *found]
        return (*self._next_to_start(i), *in_order) or (PendingReason(ReasonCode.NEXT_ROUND),)

    def _next_to_start(self, i: int) -> list[PendingReason]:
        """The GPUs that are kept for this job until it has all that it needs."""
        kept_for = self.decision.kept_for
        types = [] if kept_for is None else np.flatnonzero(kept_for == i).tolist()
        return [
            PendingReason(ReasonCode.AWAITING_RELEASE, self._kept(i, j), holders=self._holders[j])
            for j in types
            if self._kept(i, j)["left"] < self._kept(i, j)["needed"]
        ]

    def _kept(self, i: int, j: int) -> dict[str, float]:
        """GPUs of a type that the job needs there, and those left, which are kept."""
        needed = self.problem.usage[j, self._valid[i] & (self.problem.usage[j] > 0)]
        return {"gpu_type": j, "needed": int(needed.min()), "left": int(self._left[j])}

    def _kept_for_another(self, i: int) -> list[PendingReason]:
        """Another job for which the idle GPUs that this one could use are kept."""
        kept_for = self.decision.kept_for
        kept_for = np.full(len(self.problem.capacity), -1) if kept_for is None else kept_for
        for j in np.flatnonzero(self._usable[i] & (kept_for >= 0)).tolist():
            numbers, rival = self._kept(i, j), int(kept_for[j])
            if rival != i and self.assignment[rival] < 0 and numbers["needed"] <= numbers["left"]:
                return [PendingReason(ReasonCode.OUTBID, numbers, rival=rival)]
        return []

    @cached_property
    def _holders(self) -> list[Holders]:
        """The jobs that get GPUs of each type (n,)."""
        return [self._holders_of(j) for j in range(len(self.problem.capacity))]

    def _holders_of(self, j: int) -> Holders:
        problem, keeps_s = self.problem, self.decision.keeps_s
        rows = np.flatnonzero(self.assignment >= 0)
        rows = rows[problem.usage[j, self.assignment[rows]] > 0]
        rows = rows[np.argsort(-problem.usage[j, self.assignment[rows]], kind="stable")]
        columns = self.assignment[rows]
        gpus, runs = problem.usage[j, columns], problem.held[rows] == columns
        left_s = problem.remaining_steps[rows] / np.maximum(problem.rate[rows, columns], LEAST_RATE)
        kept_s = np.where(runs, 0.0 if keeps_s is None else keeps_s[rows], 0.0)
        other = kept_s <= 0
        limit_s = problem.limit_s[rows]
        told = zip(rows[:MOST_HOLDERS].tolist(), gpus.tolist(), left_s.tolist(), limit_s.tolist(), strict=False)
        return Holders(
            jobs=len(rows),
            gpus=int(gpus.sum()),
            gpus_in_all=int(problem.capacity[j]),
            first=tuple(Holder(*one) for one in told),
            keep=int((~other).sum()),
            keep_s=float(kept_s[~other].min(initial=np.inf)),
            all_run=bool(runs[other].all()),
            longest_s=float(left_s[other].max(initial=0)),
            most_gpus=int(gpus[other].max(initial=0)),
            least_backlog_s=float(problem.team_backlog_s[rows][other].min(initial=np.inf)),
            least_weight=float(problem.job_weight[rows][other].min(initial=np.inf)),
        )

    def _limits(self, i: int) -> list[PendingReason]:
        """Limits on GPUs at once that the job would exceed: of its team, or of its owner as a member of it."""
        groups = [(code, g) for code, g in zip(LIMITS, self.quotas.group[i].tolist(), strict=False) if g >= 0]
        needed = int(self.problem.gpus[self._valid[i]].min()) if groups else 0
        caps = [(code, int(self.quotas.most_gpus[g]), int(self._group_gpus[g])) for code, g in groups]
        return [
            PendingReason(code, {"limit": most, "used": used, "needed": needed})
            for code, most, used in caps
            if used + needed > most
        ]

    def _type_quotas(self, i: int) -> list[PendingReason]:
        """The quota of each type that keeps the job from GPUs there, or of which others borrow what it needs."""
        if self.quotas.by_type is None:
            return []
        return [
            reason
            for j in np.flatnonzero(self._usable[i]).tolist()
            for reason in self._type_quota(self.quotas.by_type, i, j)
        ]

    def _type_quota(self, quotas: TypeQuotas, i: int, j: int) -> Iterator[PendingReason]:
        on_type = self._valid[i] & (self.problem.usage[j] > 0)
        needed, left = int(self.problem.usage[j, on_type].min()), int(self._left[j])
        t, borrower = int(quotas.team[i]), self._borrower(quotas, i, j)
        quota, used = (int(quotas.nominal[t, j]), int(self._team_gpus[t, j])) if t >= 0 else (0, 0)
        numbers = {"gpu_type": j, "needed": needed, "quota": quota, "used": used}
        if not (self._open[i] & on_type).any():
            limit = int(quotas.most[t, j]) if t >= 0 else NO_LIMIT
            yield PendingReason(
                ReasonCode.QUOTA, numbers | ({"limit": limit} if used + needed > limit else {"left": left})
            )
        elif used + needed <= quota and left < needed and borrower is not None:
            yield PendingReason(ReasonCode.QUOTA, numbers | {"left": left}, rival=borrower)

    def _borrower(self, quotas: TypeQuotas, i: int, j: int) -> int | None:
        """Row of the team that borrows most GPUs of a type; a team without a quota borrows all it has."""
        rows = np.flatnonzero((self.assignment >= 0) & (self.problem.team != self.problem.team[i]))
        rows = rows[self.problem.usage[j, self.assignment[rows]] > 0]
        gpus = self.problem.usage[j, self.assignment[rows]]
        teams, of_row = np.unique(self.problem.team[rows], return_inverse=True)
        quota = np.append(quotas.nominal[:, j], 0)[quotas.team[rows]]
        borrowed = np.bincount(of_row, gpus, len(teams))[of_row] - quota if rows.size else np.zeros(0)
        return int(rows[borrowed.argmax()]) if (borrowed > 0).any() else None

    def _capacity(self, i: int) -> list[PendingReason]:
        """Shortages of capacity; found once for all jobs with the same request."""
        inventory = self.inventory
        needs = float(inventory.cpus_per_gpu[i]), float(inventory.memory_per_gpu_mib[i])
        request = (self._open[i].tobytes(), *needs, inventory.open_to(i).tobytes() if inventory.restricted[i] else b"")
        if request not in self._shortages:
            self._shortages[request] = self._shortage(i)
        return self._shortages[request]

    def _shortage(self, i: int) -> list[PendingReason]:
        """Shortage of each type that the job can use: too few GPUs left, or fragmented; none if one type has enough."""
        found = []
        valid = np.flatnonzero(self._open[i] & ((self.problem.usage > 0).sum(axis=0) == 1))
        block = self._blocks(i)
        for j in np.flatnonzero(self.problem.usage[:, valid].any(axis=1)).tolist():
            of_type = valid[self.problem.usage[j, valid] > 0]
            k = int(of_type[self.problem.usage[j, of_type].argmin()])
            needed, left = int(self.problem.usage[j, k]), self._left_for(i, j)
            per_node = -(-int(self.problem.gpus[k]) // int(self.problem.nodes[k]))
            largest = int(block[self.inventory.node_type == j].max(initial=0))
            where = {"gpu_type": j, "needed": needed, "left": left}
            if left < needed:
                found.append(PendingReason(ReasonCode.INSUFFICIENT_GPUS, where))
            elif largest < per_node:
                usable = self.inventory.open_to(i) & (self.inventory.node_type == j)
                free = int(self._node_left[0][usable].max(initial=0))
                blocks = {"per_node": per_node, "largest_block": largest, "free_block": free}
                found.append(PendingReason(ReasonCode.FRAGMENTED, where | blocks))
            elif (at_one := self._most_in_a_domain(block, i, j, per_node)) < needed:
                found.append(PendingReason(ReasonCode.FRAGMENTED, where | {"in_one_domain": at_one}))
            else:
                return []
        return found

    def _most_in_a_domain(self, block: Ints, i: int, j: int, per_node: int) -> float:
        """GPUs of type j left to job i in the domain that has most, in its parts; infinite if there is one domain."""
        part = block if self.inventory.uneven[i] else block // per_node * per_node
        of_type = np.where(self.inventory.node_type == j, part, 0)
        return max((int(of_type[nodes].sum()) for nodes in self.inventory.domains), default=np.inf)

    def _outbid(self, i: int) -> list[PendingReason]:
        """What other jobs have over this one: a higher priority, or more value from the same GPUs."""
        if self.decision.shares is not None:
            return self._behind(i)
        if self.decision.rival is not None:
            rival = int(self.decision.rival[i])
            return [PendingReason(ReasonCode.OUTBID, rival=rival)] if rival >= 0 else []
        kept = self._kept_for_another(i)
        return kept if self.decision.value is None else [*kept, *self._too_dear(i, self.decision.value[i])]

    def _behind(self, i: int) -> list[PendingReason]:
        """Weakest winner, over the types that the job can use, if its priority is not below that of the job.

        Priority grows with the share, so that a share above `needed_share` would have outbid that winner. A locked job
        is no winner: no share takes its GPUs.
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
        return [PendingReason(ReasonCode.OUTBID, numbers | bid, rival=winner)]

    def _too_dear(self, i: int, worth: Floats) -> list[PendingReason]:
        """Configuration of the highest reduced value, value less price of its GPUs, if no reduced value is positive.

        Under a policy that observes leases also where its GPUs are kept by others: what no job may have has no price.
        """
        k = int(self._nearest_to_its_price[i])
        value, asked = float(worth[k]), float(self._asked[k])
        j = int(self.problem.usage[:, k].argmax())
        kept = self.decision.keeps_s is not None and self._left[j] < self.problem.usage[j, k]
        if not worth.any() or (value >= asked - TOLERANCE * abs(asked) and not kept):  # zeros: it was not asked for
            return []
        where = {"gpu_type": j, "gpus": int(self.problem.gpus[k])}
        numbers = {"value": value, "price": asked, **self._backlogs(i)}
        return [PendingReason(ReasonCode.OUTBID, where | numbers, holders=self._holders[j])]

    def _backlogs(self, i: int) -> dict[str, float]:
        """GPU-hours that the job's team, and the one furthest behind, are behind their shares, if the policy counts."""
        behind_h = self.decision.behind_h
        if behind_h is None or not behind_h.any():
            return {}
        gpus = float(self.problem.capacity.sum())
        return {"behind": gpus * float(behind_h[i]), "furthest_behind": gpus * float(behind_h.max())}

    @cached_property
    def _asked(self) -> Floats:
        """Price of the GPUs of each configuration (K,)."""
        asked: Floats = self.decision.prices @ self.problem.usage
        return asked

    @cached_property
    def _nearest_to_its_price(self) -> Ints:
        """Configuration of the highest reduced value of each job (m,)."""
        worth = np.zeros_like(self.problem.rate) if self.decision.value is None else self.decision.value
        nearest: Ints = np.where(self._valid, worth - self._asked, -np.inf).argmax(axis=1)
        return nearest

    @cached_property
    def _group_gpus(self) -> Ints:
        """GPUs in use by each group (L,), rows and others."""
        used = self.quotas.used_gpus.copy()
        for i in np.flatnonzero(self.assignment >= 0).tolist():
            groups = self.quotas.group[i]
            used[groups[groups >= 0]] += self.problem.gpus[self.assignment[i]]
        return used

    @cached_property
    def _team_gpus(self) -> Ints:
        """GPUs of each type in use by each team with quotas (T, n)."""
        quotas = self.quotas.by_type
        return np.zeros((0, 0), dtype=np.int64) if quotas is None else quotas.in_use(self.problem, self.assignment)

    @cached_property
    def _open(self) -> Bools:
        """Valid configurations (m, K) that no quota on a type forbids: a limit is reached, or what is left is kept."""
        if self.quotas.by_type is None:
            return self._valid
        after = remaining_after(self.problem, self.quotas.lent(self.problem, self.assignment), self.assignment)
        shut = after.beyond_type_limits() | (after.beyond_type_quotas() & after.holds())
        return self._valid & ~shut

    @cached_property
    def _valid(self) -> Bools:
        """Configurations (m, K) with a rate."""
        return self.problem.rate > 0

    @cached_property
    def _shortages(self) -> dict[tuple[bytes, float, float, bytes], list[PendingReason]]:
        """Shortages found so far, by request."""
        return {}

    @cached_property
    def _left(self) -> Ints:
        """GPUs of each type (n,) without an owner."""
        left: Ints = np.bincount(self.inventory.gpu_type[self.owner < 0], minlength=len(self.problem.capacity))
        return left

    def _left_for(self, i: int, j: int) -> int:
        """GPUs of a type without an owner, on nodes that the job may use."""
        if not self.inventory.restricted[i]:
            return int(self._left[j])
        nodes = self.inventory.open_to(i) & (self.inventory.node_type == j)
        return int(self._node_left[0][nodes].sum())

    @cached_property
    def _usable(self) -> Bools:
        """Types (m, n) that a job can use."""
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
        """Priority (m, n) of a share of 1."""
        most = self.round_s / (self.problem.received_s.sum(axis=1) + self.round_s / 2)
        return np.broadcast_to(most[:, None], self.problem.received_s.shape)

    @cached_property
    def _weakest_winners(self) -> Ints:
        """Running row of the lowest priority on each type (n,) that is neither locked nor leased; -1 for none."""
        kept = self.problem.locked | self.problem.leased
        running = np.flatnonzero((self.assignment >= 0) & ~kept)
        uses = self.problem.usage[:, self.assignment[running]] > 0
        bids = np.where(uses, self._priority[running].T, np.inf)
        if not running.size:
            return np.full(len(uses), -1)
        weakest: Ints = np.where(uses.any(axis=1), running[bids.argmin(axis=1)], -1)
        return weakest

    @cached_property
    def _node_left(self) -> tuple[Floats, Floats, Floats]:
        """GPUs, CPUs and MiB left on each node (N,)."""
        return left_on_nodes(self.inventory, self.owner)

    def _blocks(self, i: int) -> Ints:
        """GPUs that each node (N,) could still serve to job i."""
        free, cpus, memory_mib = self._node_left
        gpus = np.where(self.inventory.open_to(i), free, 0).astype(np.int64)
        return self.inventory.servable(i, np.arange(len(gpus)), gpus=gpus, cpus=cpus, memory_mib=memory_mib)
