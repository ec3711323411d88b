"""Picks become GPUs: stable, consolidated, whole gangs."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Self

import numpy as np

from allocation.arrays import Bools, Floats, Ints
from allocation.floor import Floor
from allocation.limits import Limits
from allocation.problem import Problem
from allocation.room import room_after


def place(problem: Problem, picks: Ints, floor: Floor, limits: Limits | None = None) -> Ints:
    """Give the row that owns each GPU (G,) after the round, -1 for idle; a row gets its whole gang or nothing.

    Jobs that keep their pick stay where they are; the others follow, the largest gang first, on the tightest nodes that
    hold them. Held jobs that were not picked keep GPUs that nobody else was given, within the limits.
    """
    owner = assign(problem, picks, floor)
    return keep(problem, picks, floor, owner, limits or Limits.none(len(picks)))


def assign(problem: Problem, picks: Ints, floor: Floor, owner: Ints | None = None) -> Ints:
    """Give each pick its GPUs, where there is room beside those that `owner` (G,) has given out already."""
    plan = _Plan.start(problem, picks, floor, owner)
    plan.fill(np.flatnonzero(picks >= 0))
    lone = (problem.usage > 0).sum(axis=0) == 1
    kind = np.where((picks >= 0) & lone[picks], problem.usage.argmax(axis=0)[picks], -1)
    for j in np.unique(kind[~plan.has & (kind >= 0)]):
        plan = _defragmented(plan, np.flatnonzero(kind == j))
    return plan.owner


def _defragmented(plan: "_Plan", rows: Ints) -> "_Plan":
    """Let rows of one type move so that waiting gangs fit: all of those, else the larger half, and so on."""
    waiting = rows[~plan.has[rows]]
    waiting = waiting[np.argsort(-plan.problem.gpus[plan.picks[waiting]], kind="stable")]
    while waiting.size:
        moved = plan.moving(np.concatenate([rows[plan.has[rows]], waiting]))
        if moved is not plan:
            return moved
        waiting = waiting[: waiting.size // 2]
    return plan


def keep(problem: Problem, picks: Ints, floor: Floor, owner: Ints, limits: Limits) -> Ints:
    """Give idle GPUs back to the jobs that hold them: a job is preempted only if its GPUs are used."""
    plan = _Plan.start(problem, picks, floor, owner)
    room = room_after(problem, limits, np.where(plan.has, picks, -1))
    stopped = (problem.held >= 0) & (plan.sizes > 0) & ~plan.has
    stopped[floor.holder[(plan.owner >= 0) & (floor.holder >= 0)]] = False
    for i in np.flatnonzero(stopped).tolist():
        gpus, k = plan.held[i], int(problem.held[i])
        if room.allows(i, k) and plan.feeds(i, gpus):
            room.take(i, k)
            plan.give(i, gpus)
    return plan.owner


@dataclass(eq=False)
class _Plan:
    """A floor being filled; mutable, and private to this module."""

    problem: Problem
    picks: Ints
    floor: Floor
    owner: Ints  # (G,)
    has: Bools  # (m,) whether a row has its GPUs
    free: Ints  # (N,) GPUs without an owner
    vacant: Ints  # (N,) those of them that nobody uses now
    cpus: Floats  # (N,) left
    memory_mib: Floats  # (N,) left
    sizes: Ints  # (m,) how many a row holds now
    held: "_Groups"  # GPUs that a row holds now
    on_node: "_Groups"  # GPUs of a node

    @classmethod
    def start(cls, problem: Problem, picks: Ints, floor: Floor, owner: Ints | None) -> Self:
        """Give the plan in which everybody who stays has their GPUs."""
        m, N = len(picks), len(floor.node_type)
        plan = cls(
            problem=problem,
            picks=picks,
            floor=floor,
            owner=np.full(len(floor.gpu_node), -1, dtype=np.int64),
            has=np.zeros(m, dtype=np.bool_),
            free=np.bincount(floor.gpu_node, minlength=N),
            vacant=np.bincount(floor.gpu_node[floor.vacant], minlength=N),
            cpus=floor.node_cpus.astype(float),
            memory_mib=floor.node_memory_mib.astype(float),
            sizes=np.bincount(floor.holder[floor.holder >= 0], minlength=m),
            held=_Groups.of(floor.holder, m),
            on_node=_Groups.of(floor.gpu_node, N),
        )
        plan._settle(owner)
        return plan

    def _settle(self, owner: Ints | None) -> None:
        if owner is not None:
            self._give_all(owner)
        picked = (self.picks >= 0) & (self.picks == self.problem.held)
        whole = self.problem.locked | (self.sizes == self.problem.gpus[self.picks])
        stay = picked & whole & (self.sizes > 0) & ~self.has
        if owner is None:  # nobody is in another's way
            self._give_all(np.where((self.floor.holder >= 0) & stay[self.floor.holder], self.floor.holder, -1))
            return
        for i in np.flatnonzero(stay).tolist():
            gpus = self.held[i]
            if (self.owner[gpus] < 0).all() and self.feeds(i, gpus):  # newcomers may use its CPUs
                self.give(i, gpus)

    def _give_all(self, owner: Ints) -> None:
        """As `give`, for every row that owns a GPU (G,)."""
        taken, N = owner >= 0, len(self.free)
        rows, nodes = owner[taken], self.floor.gpu_node[taken]
        self.owner[taken] = rows
        self.has[rows] = True
        self.free -= np.bincount(nodes, minlength=N)
        self.vacant -= np.bincount(nodes[self.floor.vacant[taken]], minlength=N)
        self.cpus -= np.bincount(nodes, self.floor.cpus_per_gpu[rows], N)
        self.memory_mib -= np.bincount(nodes, self.floor.memory_per_gpu_mib[rows], N)

    def fill(self, rows: Ints) -> None:
        """Place these rows' picks, the largest gang first."""
        rows = np.sort(rows[~self.has[rows]])
        gangs = self.problem.gpus[self.picks[rows]]
        for gang in np.unique(gangs)[::-1]:
            for rivals in self._rivals(rows[gangs == gang]):
                self._fill_in_turn(rivals)

    def _rivals(self, rows: Ints) -> list[Ints]:
        """Apart, those who want nodes of one type or another; all, if somebody wants nodes of several."""
        uses = self.problem.usage[:, self.picks[rows]] > 0
        return [rows[of_type] for of_type in uses if of_type.any()] if (uses.sum(axis=0) == 1).all() else [rows]

    def _fill_in_turn(self, rows: Ints) -> None:
        if self._is_plain(rows):
            self._fill_tightly(rows, int(self.picks[rows[0]]))
            return
        for i in rows.tolist():
            gpus = self._find(i)
            if gpus is not None:
                self.give(i, gpus)

    def _is_plain(self, rows: Ints) -> bool:
        """Whether all want the same of one type, in equal parts, and none holds GPUs there, to which to be near."""
        k = int(self.picks[rows[0]])
        if np.count_nonzero(self.problem.usage[:, k]) > 1 or self.problem.gpus[k] % self.problem.nodes[k]:
            return False
        if (self.picks[rows] != k).any() or (self.problem.nodes[k] > 1 and self.floor.uneven[rows].any()):
            return False
        wants = np.zeros(len(self.picks) + 1, dtype=np.bool_)
        wants[rows] = True
        return not (wants[self.floor.holder] & (self.problem.usage[self.floor.gpu_type, k] > 0)).any()

    def _fill_tightly(self, rows: Ints, k: int) -> None:
        """The same for plain rows: the tightest nodes are on top, and whoever gets GPUs of them moves no other."""
        count = int(self.problem.nodes[k])
        each, of_type = int(self.problem.gpus[k]) // count, self.problem.usage[self.floor.node_type, k] > 0
        nodes = [self._tightness(v, each) for v in np.flatnonzero(of_type & (self.free >= each)).tolist()]
        heapify(nodes)
        idle = self._idle_of(of_type)
        for i in rows.tolist():
            seen, best = list[tuple[int, int, int]](), list[int]()
            while nodes and len(best) < count:
                seen.append(heappop(nodes))
                best += [seen[-1][-1]] if self._serves(i, seen[-1][-1], each) else []
            if len(best) == count:
                self.give(i, np.array([idle[v].pop() for v in best for _ in range(each)]))
                seen = [self._tightness(v, each) for *_, v in seen if self.free[v] >= each]
            for node in seen:
                heappush(nodes, node)

    def moving(self, rows: Ints) -> "_Plan":
        """Give the plan in which these rows may move, if that places more of them and drops none."""
        movers = rows[self.has[rows] & ~self.problem.locked[rows]]
        other = _Plan.start(
            self.problem,
            np.full_like(self.picks, -1),
            self.floor,
            np.where(np.isin(self.owner, movers), -1, self.owner),
        )
        other.picks = self.picks
        other.fill(rows)
        better = not (self.has & ~other.has).any() and other.has.sum() > self.has.sum()
        return other if better else self

    def _idle_of(self, nodes: Bools) -> dict[int, list[int]]:
        """GPUs of these nodes (N,) without an owner, by node; those that nobody uses come last, of them the first."""
        gpus = np.flatnonzero(nodes[self.floor.gpu_node] & (self.owner < 0))[::-1]
        gpus = gpus[np.argsort(self.floor.vacant[gpus], kind="stable")]
        idle = defaultdict[int, list[int]](list)
        for gpu, node in zip(gpus.tolist(), self.floor.gpu_node[gpus].tolist(), strict=True):
            idle[node].append(gpu)
        return idle

    def _tightness(self, node: int, gang: int) -> tuple[int, int, int]:
        """Least first: who must leave for it, GPUs without an owner, the node itself."""
        return max(gang - int(self.vacant[node]), 0), int(self.free[node]), node

    def give(self, i: int, gpus: Ints) -> None:
        self.owner[gpus] = i
        self.has[i] = True
        if gpus.size == 1:
            self._give_one(i, int(gpus[0]))
            return
        nodes = self.floor.gpu_node[gpus]
        np.subtract.at(self.free, nodes, 1)
        np.subtract.at(self.vacant, nodes[self.floor.vacant[gpus]], 1)
        np.subtract.at(self.cpus, nodes, self.floor.cpus_per_gpu[i])
        np.subtract.at(self.memory_mib, nodes, self.floor.memory_per_gpu_mib[i])

    def _give_one(self, i: int, gpu: int) -> None:
        node = self.floor.gpu_node[gpu]
        self.free[node] -= 1
        self.vacant[node] -= self.floor.vacant[gpu]
        self.cpus[node] -= self.floor.cpus_per_gpu[i]
        self.memory_mib[node] -= self.floor.memory_per_gpu_mib[i]

    def _serves(self, i: int, node: int, gang: int) -> bool:
        """Whether a node that has the GPUs has the CPUs and the memory, too."""
        needs = self.floor.cpus_per_gpu[i] > 0 or self.floor.memory_per_gpu_mib[i] > 0
        return not needs or bool(self._servable(i, np.array([node]))[0] >= gang)

    def feeds(self, i: int, gpus: Ints) -> bool:
        """Whether the nodes have the CPUs and the memory that job i needs beside these GPUs."""
        nodes, counts = np.unique(self.floor.gpu_node[gpus], return_counts=True)
        return bool((self._servable(i, nodes) >= counts).all())

    def _servable(self, i: int, nodes: Ints) -> Ints:
        """How many of its GPUs each node could serve job i."""
        most = self.free[nodes].astype(float)
        for left, each in (
            (self.cpus, self.floor.cpus_per_gpu[i]),
            (self.memory_mib, self.floor.memory_per_gpu_mib[i]),
        ):
            if each > 0:
                most = np.minimum(most, np.floor(left[nodes] / each + 1e-9))
        whole: Ints = np.maximum(most, 0).astype(np.int64)
        return whole

    def _find(self, i: int) -> Ints | None:
        """GPUs for the pick of job i, or None."""
        k = self.picks[i]
        gpus = []
        for j in np.flatnonzero(self.problem.usage[:, k]):
            spread = self._spread(i, int(self.problem.usage[j, k]), np.flatnonzero(self.floor.node_type == j), k)
            if spread is None:
                return None
            gpus += [self._choose(i, int(v), int(count)) for v, count in spread]
        return np.concatenate(gpus)

    def _spread(self, i: int, gang: int, nodes: Ints, k: int) -> Iterable[tuple[int, int]] | None:
        most = self._servable(i, nodes)
        each, uneven_rest = divmod(int(self.problem.gpus[k]), int(self.problem.nodes[k]))
        if self.floor.uneven[i] and self.problem.nodes[k] > 1:
            return _fewest(nodes, most, gang)
        if uneven_rest or gang % each:
            return None
        return self._tightest(i, nodes, most, each=each, count=gang // each)

    def _tightest(self, i: int, nodes: Ints, most: Ints, *, each: int, count: int) -> Iterable[tuple[int, int]] | None:
        """Own nodes first, then those where nobody must leave, then the fullest."""
        enough = np.flatnonzero(most >= each)
        if enough.size < count:
            return None
        fit = nodes[enough]
        mine = np.bincount(self.floor.gpu_node[self.held[i]], minlength=len(self.free))[fit]
        vacated = np.maximum(each - self.vacant[fit] - mine, 0)
        best = np.lexsort((fit, self.free[fit], vacated, -mine))[:count]
        return [(int(v), each) for v in fit[best]]

    def _choose(self, i: int, node: int, count: int) -> Ints:
        """GPUs of a node without an owner: the job's own first, then those that nobody uses."""
        idle = self.on_node[node][self.owner[self.on_node[node]] < 0]
        order = np.lexsort((idle, ~self.floor.vacant[idle], self.floor.holder[idle] != i))
        chosen: Ints = idle[order[:count]]
        return chosen


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
