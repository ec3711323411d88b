"""Placement of gangs on GPUs: whole gangs, on few and tight nodes, with few moves."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import accumulate
from typing import Self

import numpy as np

from allocation.demands import MIB_PER_GIB, ROUNDING, DemandBooks
from allocation.inventory import Inventory
from allocation.problem import Problem
from allocation.quotas import Quotas
from allocation.remaining_capacity import remaining_after
from allocation.rounds.node_order import NodeOrder
from allocation.rounds.relabelling import relabelled
from allocation.types import Bools, Floats, Ints

NODES_PER_ROW = 25
"""With more nodes for each row of the same demand, a heap of all nodes takes longer than a search for each row."""


def place_gangs(problem: Problem, assignment: Ints, inventory: Inventory, owner: Ints | None = None) -> Ints:
    """Place the gang of each assigned row beside those that own GPUs (G,) already; return the owner of each GPU (G,).

    Jobs that keep their configuration stay where they are; the others follow, the largest gang first, on those of the
    nodes that hold them which they prefer (`allocation.rounds.node_order`), of these on those without slow GPUs, of
    these on those that have the CPUs and the memory that it would like to have (`allocation.demands`) [2]_, and of
    these on the tightest: a gang is lost with the first of its nodes, and is as fast as its slowest GPU [1]_. Of gangs
    of one size the one with the largest demand chooses first. Jobs that are short of slack choose before larger gangs.
    A row gets its whole gang or nothing.

    References
    ----------
    .. [1] Jain et al., arXiv 2408.11919, "PAL: A Variability-Aware Policy for Scheduling ML Workloads in GPU Clusters".
    .. [2] Mohan et al., OSDI 2022, "Looking Beyond GPUs for DNN Scheduling on Multi-Tenant Clusters", section 4.2.
    """
    order = NodeOrder.of(problem, assignment, inventory)
    placement = _Placement.start(problem, assignment, inventory, owner, order)
    placement.fill(np.flatnonzero(assignment >= 0))
    lone = (problem.usage > 0).sum(axis=0) == 1
    kind = np.where((assignment >= 0) & lone[assignment], problem.usage.argmax(axis=0)[assignment], -1)
    for j in np.unique(kind[~placement.has & (kind >= 0)]):
        placement = _defragmented(placement, np.flatnonzero(kind == j))
    return placement.owner


def _defragmented(placement: "_Placement", rows: Ints) -> "_Placement":
    """Defragment one type: move its rows so that all waiting gangs fit, else the larger half of them, and so on.

    Nothing is tried where CPUs or memory are used up, whichever nodes rows were on.
    """
    waiting = rows[~placement.has[rows]]
    waiting = waiting[np.argsort(-placement.problem.gpus[placement.assignment[waiting]], kind="stable")]
    while waiting.size and placement.could_feed(waiting, rows):
        moved = placement.moving(np.concatenate([rows[placement.has[rows]], waiting]))
        if moved is not placement:
            return moved.with_few_moves()
        waiting = waiting[: waiting.size // 2]
    return placement


def return_idle_gpus(
    problem: Problem, assignment: Ints, inventory: Inventory, owner: Ints, quotas: Quotas, *, kept: Ints | None = None
) -> Ints:
    """Return idle GPUs to the jobs that hold them: a job is preempted only if its GPUs are needed.

    kept (n,) are those that stay idle: the decision keeps them for a job.
    """
    placement = _Placement.start(problem, assignment, inventory, owner)
    remaining = remaining_after(problem, quotas, np.where(placement.has, assignment, -1))
    stopped = (problem.held >= 0) & (placement.sizes > 0) & ~placement.has
    stopped[inventory.holder[(placement.owner >= 0) & (inventory.holder >= 0)]] = False
    spare = placement.idle - (0 if kept is None else kept)
    for i in np.flatnonzero(stopped).tolist():
        gpus, k = placement.held[i], int(problem.held[i])
        of_type = np.bincount(inventory.gpu_type[gpus], minlength=len(spare))
        is_spare = bool((of_type <= spare)[of_type > 0].all())
        if is_spare and remaining.allows(i, k) and placement.feeds(i, gpus):
            remaining.take(i, k)
            placement.give(i, gpus)
            spare = spare - of_type
    return placement.owner


@dataclass(eq=False)
class _Placement:
    """Placement under construction; mutable, and private to this module."""

    problem: Problem
    assignment: Ints
    inventory: Inventory
    owner: Ints  # (G,)
    has: Bools  # (m,) whether a row has its GPUs
    free: Ints  # (N,) GPUs without an owner
    vacant: Ints  # (N,) those of them that no job uses now
    free_by_class: Ints  # (N, classes) GPUs without an owner by how slow they are; kept only where some are slow
    cpus: Floats  # (N,) left
    memory_mib: Floats  # (N,) left
    sizes: Ints  # (m,) how many a row holds now
    held: "_Groups"  # GPUs that a row holds now
    on_node: "_Groups"  # GPUs of a node
    order: NodeOrder | None  # that rows prefer; None where nothing is placed anew
    demands: DemandBooks | None  # None: CPUs and memory are those that rows ask for

    @classmethod
    def start(
        cls,
        problem: Problem,
        assignment: Ints,
        inventory: Inventory,
        owner: Ints | None,
        order: NodeOrder | None = None,
        *,
        settle: bool = True,
        like: Self | None = None,
    ) -> Self:
        """Placement in which only rows that own GPUs have theirs and, if it is to `settle`, the rows that stay.

        What depends on the inventory alone is that of `like`, if another placement of it is given.
        """
        m, N = len(assignment), len(inventory.node_type)
        placement = cls(
            problem=problem,
            assignment=assignment,
            inventory=inventory,
            owner=np.full(len(inventory.gpu_node), -1, dtype=np.int64),
            has=np.zeros(m, dtype=np.bool_),
            free=np.bincount(inventory.gpu_node, minlength=N),
            vacant=np.bincount(inventory.gpu_node[inventory.vacant], minlength=N),
            free_by_class=inventory.by_slow_class(np.ones(len(inventory.gpu_node), dtype=np.bool_)),
            cpus=inventory.node_cpus.astype(float),
            memory_mib=inventory.node_memory_mib.astype(float),
            sizes=like.sizes if like else np.bincount(inventory.holder[inventory.holder >= 0], minlength=m),
            held=like.held if like else _Groups.of(inventory.holder, m),
            on_node=like.on_node if like else _Groups.of(inventory.gpu_node, N),
            order=order,
            demands=_books_of(inventory, assignment),
        )
        if owner is not None:
            placement._give_all(owner)
        if settle:
            placement._settle(owner)
        return placement

    def _settle(self, owner: Ints | None) -> None:
        picked = (self.assignment >= 0) & (self.assignment == self.problem.held)
        whole = self.problem.locked | (self.sizes == self.problem.gpus[self.assignment])
        stay = picked & whole & (self.sizes > 0) & ~self.has
        if owner is None:  # no two rows want the same GPU
            self._give_all(
                np.where((self.inventory.holder >= 0) & stay[self.inventory.holder], self.inventory.holder, -1)
            )
            return
        for i in np.flatnonzero(stay).tolist():
            gpus = self.held[i]
            if (self.owner[gpus] < 0).all() and self.feeds(i, gpus):  # newcomers may use its CPUs
                self.give(i, gpus)

    def _give_all(self, owner: Ints) -> None:
        """Do as `give` for every row that owns a GPU (G,)."""
        taken, N = owner >= 0, len(self.free)
        rows, nodes = owner[taken], self.inventory.gpu_node[taken]
        self.owner[taken] = rows
        self.has[rows] = True
        self.free -= np.bincount(nodes, minlength=N)
        self.vacant -= np.bincount(nodes[self.inventory.vacant[taken]], minlength=N)
        self.free_by_class -= self.inventory.by_slow_class(taken)
        goes_on = self.inventory.goes_on(owner)[taken]
        cpus, memory_mib = self.inventory.booked(rows, nodes, goes_on)
        self.cpus -= np.bincount(nodes, cpus, N)
        self.memory_mib -= np.bincount(nodes, memory_mib, N)
        if self.demands is not None:
            self.demands.take(rows, nodes, goes_on)

    def fill(self, rows: Ints) -> None:
        """Place the configurations of these rows: those that not all nodes may serve before the others."""
        restricted, short = self.inventory.restricted[rows], self._orders.short_of_slack[rows]
        for first in (restricted & short, restricted & ~short, ~restricted & short, ~restricted & ~short):
            self._fill_by_size(rows[first])

    @property
    def idle(self) -> Ints:
        """GPUs (n,) of each type without an owner."""
        return np.bincount(self.inventory.gpu_type[self.owner < 0], minlength=len(self.problem.capacity))

    @property
    def _orders(self) -> NodeOrder:
        if self.order is None:
            raise ValueError("nothing is placed anew without an order of nodes")
        return self.order

    def _fill_by_size(self, rows: Ints) -> None:
        """Place the largest gang first."""
        rows = np.sort(rows[~self.has[rows]])
        if not rows.size:
            return
        gangs = self.problem.gpus[self.assignment[rows]]
        for gang in np.unique(gangs)[::-1]:
            for rivals in self._rivals(rows[gangs == gang]):
                self._fill_in_turn(rivals)

    def _rivals(self, rows: Ints) -> list[Ints]:
        """Split rows by the nodes that they prefer, the type that they want, if none wants several, and demand."""
        uses = self.problem.usage[:, self.assignment[rows]] > 0
        lone = (uses.sum(axis=0) == 1).all()
        of_types = [rows[of_type] for of_type in uses if of_type.any()] if lone else [rows]
        by_order = [some for of_type in of_types for some in self._by_order(of_type)]
        return [alike for some in by_order for alike in self._by_demand(some)]

    def _by_demand(self, rows: Ints) -> list[Ints]:
        """Split rows by demand, the largest first; where CPUs may be too few for some, one by one, as they came."""
        if self.demands is None:
            return [rows]
        return self.demands.alike(rows) if self._is_ample(rows) else [rows[i : i + 1] for i in range(rows.size)]

    def _is_ample(self, rows: Ints) -> bool:
        """Whether none of these rows asks for CPUs or memory, and what engines book is there for each GPU."""
        if self.inventory.cpus_per_gpu[rows].any() or self.inventory.memory_per_gpu_mib[rows].any():
            return False
        if self.inventory.node_least is None:
            return True
        left = np.column_stack([self.cpus, self.memory_mib])
        return bool((left >= self.free[:, None] * self.inventory.node_least).all())

    def _by_order(self, rows: Ints) -> list[Ints]:
        """Split rows by the nodes that they prefer."""
        order = self._orders.order[rows]
        return [rows[order == one] for one in np.unique(order)]

    def _fill_in_turn(self, rows: Ints) -> None:
        if self._is_plain(rows):
            self._fill_tightly(rows, int(self.assignment[rows[0]]))
            return
        for i in rows.tolist():
            gpus = self._find(i)
            if gpus is not None:
                self.give(i, gpus)

    def _is_plain(self, rows: Ints) -> bool:
        """Whether all rows want the same configuration of one type, in equal parts, and none holds GPUs of it."""
        k = int(self.assignment[rows[0]])
        if np.count_nonzero(self.problem.usage[:, k]) > 1 or self.problem.gpus[k] % self.problem.nodes[k]:
            return False
        several = self.problem.nodes[k] > 1
        if self.demands is not None and rows.size * NODES_PER_ROW < len(self.free):
            return False
        if (self.assignment[rows] != k).any() or (several and self.inventory.uneven[rows].any()):
            return False
        if several and self.inventory.domains:
            return False
        wants = np.zeros(len(self.assignment) + 1, dtype=np.bool_)
        wants[rows] = True
        return not (wants[self.inventory.holder] & (self.problem.usage[self.inventory.gpu_type, k] > 0)).any()

    def _fill_tightly(self, rows: Ints, k: int) -> None:
        """Best fit for plain rows, with the tightest nodes on top of a heap; those that can serve no row leave it."""
        count = int(self.problem.nodes[k])
        each, of_type = int(self.problem.gpus[k]) // count, self.problem.usage[self.inventory.node_type, k] > 0
        rank = self._orders.rank[self._orders.order[rows[0]]]
        needs, some = self._needs(rows), int(rows[0])  # rows that are served here have the same demand
        lightest = _lightest(rows, needs)
        able = self._able(np.flatnonzero(of_type & (self.free >= each)), lightest, each)
        nodes = [self._tightness(some, v, each, rank) for v in able.tolist()]
        heapify(nodes)
        idle, unserved = self._idle_of(of_type), set[tuple[float, ...]]()
        for i, needed in zip(rows.tolist(), map(tuple, needs.tolist()), strict=True):
            if needed in unserved:
                continue
            best, seen = self._tightest_of(nodes, i, lightest, each=each, count=count)
            if len(best) == count:
                self.give(i, np.array([idle[v].pop() for v in best for _ in range(each)]))
                seen = [self._tightness(some, v, each, rank) for *_, v in seen if self.free[v] >= each]
            else:
                unserved.add(needed)  # what nodes have left only becomes less
            for node in seen:
                heappush(nodes, node)

    def _tightest_of(
        self, nodes: list[tuple[int, ...]], i: int, lightest: int | None, *, each: int, count: int
    ) -> tuple[list[int], list[tuple[int, ...]]]:
        """Nodes for row i from a heap, and all that were taken from it and could serve some row."""
        best, seen = list[int](), list[tuple[int, ...]]()
        while nodes and len(best) < count:
            node = heappop(nodes)
            if self._serves(i, node[-1], each):
                best.append(node[-1])
            elif lightest is not None and not self._serves(lightest, node[-1], each):
                continue
            seen.append(node)
        return best, seen

    def _able(self, nodes: Ints, row: int | None, gang: int) -> Ints:
        """Those of the nodes that have the CPUs and the memory for a gang of this row; all for no row."""
        return nodes if row is None else nodes[self._servable(row, nodes) >= gang]

    def _needs(self, rows: Ints) -> Floats:
        """What decides which nodes can serve each row (r, 3): its set of nodes, CPUs and memory."""
        node_set = self.inventory.node_set
        sets = np.full(rows.size, -1) if node_set is None else node_set[rows]
        return np.column_stack([sets, self.inventory.cpus_per_gpu[rows], self.inventory.memory_per_gpu_mib[rows]])

    def moving(self, rows: Ints) -> "_Placement":
        """Placement in which these rows may move, if that places more of them and drops none."""
        movers = rows[self.has[rows] & ~self.problem.locked[rows]]
        other = self._with(np.where(np.isin(self.owner, movers), -1, self.owner))
        other.fill(rows)
        better = not (self.has & ~other.has).any() and other.has.sum() > self.has.sum()
        return other if better and not (other.overbooked & ~self.overbooked).any() else self

    def could_feed(self, waiting: Ints, movers: Ints) -> bool:
        """Whether all nodes of a type together have the CPUs and the memory for one of its waiting gangs.

        If not, no move of rows makes room: each takes what it asks for along, and leaves only what it has beyond that.
        """
        k = self.assignment[waiting]
        nodes = self.problem.usage[self.inventory.node_type, k[0]] > 0
        gpus = np.flatnonzero(nodes[self.inventory.gpu_node] & np.isin(self.owner, movers))
        rows, goes_on = self.owner[gpus], self.inventory.goes_on(self.owner)[gpus]
        booked = np.column_stack(self.inventory.booked(rows, self.inventory.gpu_node[gpus], goes_on))
        anew = self._least_of(rows, nodes)
        left = np.maximum(np.column_stack([self.cpus, self.memory_mib])[nodes], 0).sum(axis=0)
        needs = self.problem.gpus[k][:, None] * self._least_of(waiting, nodes)
        return bool((needs <= (left + (booked - anew).sum(axis=0)) * (1 + ROUNDING)).all(axis=1).any())

    def _least_of(self, rows: Ints, nodes: Bools) -> Floats:
        """CPUs and MiB (r, 2) for a GPU of each row on that of these nodes (N,) where they are the fewest."""
        asked = np.column_stack([self.inventory.cpus_per_gpu[rows], self.inventory.memory_per_gpu_mib[rows]])
        least = self.inventory.node_least
        return asked if least is None else np.maximum(asked, least[nodes].min(axis=0))

    def with_few_moves(self) -> "_Placement":
        """The same placement after contents of equal nodes are exchanged so that most jobs keep their nodes."""
        stays = (self.assignment >= 0) & (self.assignment == self.problem.held)
        other = self._with(relabelled(self.owner, self.inventory, stays, self.problem.locked))
        return self if (other.overbooked & ~self.overbooked).any() else other

    @property
    def overbooked(self) -> Bools:
        """Nodes (N,) with less than their jobs have: one that gets back what it holds keeps what is booked for it."""
        short: Bools = (self.cpus < -ROUNDING) | (self.memory_mib < -ROUNDING)
        return short

    def _with(self, owner: Ints) -> "_Placement":
        """Placement of the same assignment in which these own the GPUs (G,)."""
        return _Placement.start(
            self.problem, self.assignment, self.inventory, owner, self.order, settle=False, like=self
        )

    def _idle_of(self, nodes: Bools) -> dict[int, list[int]]:
        """GPUs of these nodes (N,) without an owner, by node, to be popped: vacant ones first, then the fastest."""
        gpus = np.flatnonzero(nodes[self.inventory.gpu_node] & (self.owner < 0))[::-1]
        gpus = gpus[np.lexsort((-self.inventory.slow_class[gpus], self.inventory.vacant[gpus]))]
        idle = defaultdict[int, list[int]](list)
        for gpu, node in zip(gpus.tolist(), self.inventory.gpu_node[gpus].tolist(), strict=True):
            idle[node].append(gpu)
        return idle

    def _tightness(self, i: int, node: int, gang: int, rank: Ints) -> tuple[int, ...]:
        """Sort key of a node: GPUs to vacate for the gang, rank (N,), how slow, short of CPUs, free GPUs, index."""
        slow = self._slowness_of(node, gang) if self.inventory.slow_classes > 1 else 0
        short = 0 if self.demands is None else int(self.demands.shortage(i, np.array([node]), gang)[0])
        return max(gang - int(self.vacant[node]), 0), int(rank[node]), slow, short, int(self.free[node]), node

    def _slowness(self, nodes: Ints, gang: int) -> Ints:
        """How slow a gang is on its fastest GPUs of each node that has enough: the class of the slowest of them."""
        slowness: Ints = (self.free_by_class[nodes].cumsum(axis=1) < gang).sum(axis=1)
        return slowness

    def _slowness_of(self, node: int, gang: int) -> int:
        """As `_slowness`, for one node: NumPy's calls would take longer than the few additions."""
        reach = accumulate(self.free_by_class[node].tolist())
        return sum(free < gang for free in reach)

    def give(self, i: int, gpus: Ints) -> None:
        self.owner[gpus] = i
        self.has[i] = True
        if gpus.size == 1:
            self._give_one(i, int(gpus[0]))
            return
        nodes = self.inventory.gpu_node[gpus]
        np.subtract.at(self.free, nodes, 1)
        np.subtract.at(self.vacant, nodes[self.inventory.vacant[gpus]], 1)
        if self.inventory.slow_classes > 1:
            np.subtract.at(self.free_by_class, (nodes, self.inventory.slow_class[gpus]), 1)
        self._book(i, gpus, nodes)

    def _give_one(self, i: int, gpu: int) -> None:
        node = self.inventory.gpu_node[gpu]
        self.free[node] -= 1
        self.vacant[node] -= self.inventory.vacant[gpu]
        if self.inventory.slow_classes > 1:
            self.free_by_class[node, self.inventory.slow_class[gpu]] -= 1
        if self.inventory.node_least is None and self.demands is None:  # NumPy's calls would take longer
            self.cpus[node] -= self.inventory.cpus_per_gpu[i]
            self.memory_mib[node] -= self.inventory.memory_per_gpu_mib[i]
            return
        self._book(i, np.array([gpu]), np.array([node]))

    def _book(self, i: int, gpus: Ints, nodes: Ints) -> None:
        """Take CPUs and memory for these GPUs from the nodes beside them."""
        rows, same = np.full(gpus.size, i), bool((self.inventory.holder[gpus] == i).all())
        goes_on = np.full(gpus.size, same and gpus.size == self.sizes[i])
        cpus, memory_mib = self.inventory.booked(rows, nodes, goes_on)
        np.subtract.at(self.cpus, nodes, cpus)
        np.subtract.at(self.memory_mib, nodes, memory_mib)
        if self.demands is not None:
            self.demands.take(rows, nodes, goes_on)

    def _serves(self, i: int, node: int, gang: int) -> bool:
        """Whether a node that has the GPUs has the CPUs and the memory, too."""
        asks = self.inventory.cpus_per_gpu[i] > 0 or self.inventory.memory_per_gpu_mib[i] > 0
        needs = asks or self.inventory.node_least is not None
        return not (needs or self.inventory.restricted[i]) or bool(self._servable(i, np.array([node]))[0] >= gang)

    def feeds(self, i: int, gpus: Ints) -> bool:
        """Whether the nodes have the CPUs and the memory that job i needs beside these GPUs, which it holds."""
        nodes, counts = np.unique(self.inventory.gpu_node[gpus], return_counts=True)
        return bool((self._fed(i, nodes, goes_on=True) >= counts).all())

    def _servable(self, i: int, nodes: Ints) -> Ints:
        """GPUs that each node could still serve to job i."""
        fed = self._fed(i, nodes)
        return np.where(self.inventory.open_to(i)[nodes], fed, 0) if self.inventory.restricted[i] else fed

    def _fed(self, i: int, nodes: Ints, *, goes_on: bool = False) -> Ints:
        """GPUs without an owner for which each node has the CPUs and the memory."""
        cpus, memory_mib = self.cpus[nodes], self.memory_mib[nodes]
        free, servable = self.free[nodes], self.inventory.servable
        return servable(i, nodes, gpus=free, cpus=cpus, memory_mib=memory_mib, goes_on=goes_on)

    def _find(self, i: int) -> Ints | None:
        """GPUs for the configuration of job i in one domain, or None."""
        domains = self.inventory.domains
        if not domains or self.problem.nodes[self.assignment[i]] == 1:
            return self._find_among(i, np.ones(len(self.free), dtype=np.bool_))
        found = [gpus for nodes in domains if (gpus := self._find_among(i, nodes)) is not None]
        return min(found, key=lambda gpus: self._changes(i, gpus), default=None)

    def _changes(self, i: int, gpus: Ints) -> tuple[int, int]:
        """Sort key of GPUs for job i: those that it does not hold yet, and those of them that another must leave."""
        new = gpus[self.inventory.holder[gpus] != i]
        return new.size, int((~self.inventory.vacant[new]).sum())

    def _find_among(self, i: int, nodes: Bools) -> Ints | None:
        """GPUs for the configuration of job i on these nodes (N,), or None."""
        k = self.assignment[i]
        gpus = []
        for j in np.flatnonzero(self.problem.usage[:, k]):
            of_type = np.flatnonzero(nodes & (self.inventory.node_type == j))
            spread = self._spread(i, int(self.problem.usage[j, k]), of_type, k)
            if spread is None:
                return None
            gpus += [self._choose(i, int(v), int(count)) for v, count in spread]
        return np.concatenate(gpus)

    def _spread(self, i: int, gang: int, nodes: Ints, k: int) -> Iterable[tuple[int, int]] | None:
        most = self._servable(i, nodes)
        each, uneven_rest = divmod(int(self.problem.gpus[k]), int(self.problem.nodes[k]))
        if self.inventory.uneven[i] and self.problem.nodes[k] > 1:
            return _fewest(nodes, most, gang)
        if uneven_rest or gang % each:
            return None
        return self._tightest(i, nodes, most, each=each, count=gang // each)

    def _tightest(self, i: int, nodes: Ints, most: Ints, *, each: int, count: int) -> Iterable[tuple[int, int]] | None:
        """Nodes for equal parts: those it holds, then where no job must leave, those it prefers, fastest, fullest."""
        enough = np.flatnonzero(most >= each)
        if enough.size < count:
            return None
        fit = nodes[enough]
        mine = np.bincount(self.inventory.gpu_node[self.held[i]], minlength=len(self.free))[fit]
        vacated = np.maximum(each - self.vacant[fit] - mine, 0)
        rank = self._orders.rank[self._orders.order[i]][fit]
        keys = [fit, self.free[fit], rank, vacated, -mine]
        if self.demands is not None:
            keys.insert(2, self.demands.shortage(i, fit, each))
        if self.inventory.slow_classes > 1:
            keys.insert(-3, self._slowness(fit, each))
        best = np.lexsort(keys)[:count]
        return [(int(v), each) for v in fit[best]]

    def _choose(self, i: int, node: int, count: int) -> Ints:
        """GPUs of a node without an owner: first those that the job holds, then vacant ones, then the fastest."""
        there = self.on_node[node]
        idle = there[self.owner[there] < 0]
        if idle.size == count:
            return idle
        slow, held = self.inventory.slow_class[idle], self.inventory.holder[idle] == i
        order = np.lexsort((idle, slow, ~self.inventory.vacant[idle], ~held))
        chosen: Ints = idle[order[:count]]
        return chosen


def _books_of(inventory: Inventory, assignment: Ints) -> DemandBooks | None:
    if inventory.demands is None:
        return None
    capacity = np.column_stack([inventory.node_cpus, inventory.node_memory_mib / MIB_PER_GIB])
    asked = np.column_stack([inventory.cpus_per_gpu, inventory.memory_per_gpu_mib / MIB_PER_GIB])
    return DemandBooks.start(inventory.demands, assignment, capacity=capacity, asked=asked)


def _lightest(rows: Ints, needs: Floats) -> int | None:
    """The row that can be served wherever one of these can, by their needs (r, 3); None: there is no such row."""
    lightest = int(np.lexsort(needs[:, :0:-1].T)[0])
    alike = (needs[:, 0] == needs[lightest, 0]).all() and (needs >= needs[lightest]).all()
    return int(rows[lightest]) if alike else None


def _fewest(nodes: Ints, most: Ints, gang: int) -> list[tuple[int, int]] | None:
    """Give (node, GPUs) on as few nodes as hold the gang; the last is the tightest that holds the rest."""
    order = np.argsort(-most, kind="stable")
    reach = np.cumsum(most[order])
    last = int(np.searchsorted(reach, gang))
    if gang == 0 or last == len(order):
        return None
    full = order[:last]
    rest = gang - int(most[full].sum())
    able = order[last:][most[order[last:]] >= rest]
    return [(int(nodes[v]), int(most[v])) for v in full] + [(int(nodes[able[most[able].argmin()]]), rest)]


@dataclass(frozen=True, eq=False)
class _Groups:
    """The positions of each label 0, 1, ... in an array of labels."""

    order: Ints
    bounds: Ints

    @classmethod
    def of(cls, labels: Ints, groups: int) -> Self:
        order = np.argsort(labels, kind="stable")
        return cls(order, np.searchsorted(labels[order], np.arange(groups + 1)))

    def __getitem__(self, label: int) -> Ints:
        return self.order[self.bounds[label] : self.bounds[label + 1]]
