"""Relabelling of equal nodes by a linear assignment problem (SciPy's), so that the fewest jobs move.

A placement decides which jobs share a node. Which of several equal nodes that is matters only to jobs that run on one
of them already.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

import numpy as np
import scipy

from allocation.inventory import Inventory
from allocation.types import Bools, Floats, Ints

SLIGHTLY = 1e-9
"""Gain that is a rounding error."""


def relabelled(owner: Ints, inventory: Inventory, stays: Bools, locked: Bools) -> Ints:
    """Owner (G,) of each GPU after the contents of equal nodes are exchanged so that most jobs keep their nodes.

    Parameters
    ----------
    owner : (G,) int, the row that is to own a GPU, or -1.
    stays : (m,) bool, rows that need no restart if they keep their nodes: they hold as many GPUs as they are to own.
    locked : (m,) bool, rows that must keep their nodes.

    References
    ----------
    .. [1] Tesserae, arXiv 2508.04953 (placement with few migrations as a matching of nodes).
    """
    new, weight = owner.copy(), np.where(locked, len(stays), 1) * stays
    changed = np.zeros(len(inventory.node_type), dtype=np.bool_)
    changed[inventory.gpu_node[owner != inventory.holder]] = True
    here, there = (_jobs_on(of, inventory, stays, changed) for of in (owner, inventory.holder))
    for v in np.flatnonzero(changed).tolist():
        changed[v] = here[v] != there[v]
    for nodes in _equal_nodes(inventory, changed):
        gain = _kept([here[v] for v in nodes.tolist()], [there[v] for v in nodes.tolist()], weight)
        contents, places = scipy.optimize.linear_sum_assignment(gain, maximize=True)
        if gain[contents, places].sum() > gain.trace() + SLIGHTLY:
            for content, place in zip(nodes[contents].tolist(), nodes[places].tolist(), strict=True):
                _move(owner, new, inventory, content, place)
    return new


def _jobs_on(of: Ints, inventory: Inventory, stays: Bools, among: Bools) -> dict[int, Counter[int]]:
    """Number of GPUs of each job that stays, by node, among these nodes (N,)."""
    found = defaultdict[int, Counter[int]](Counter)
    counted = (of >= 0) & stays[of] & among[inventory.gpu_node]
    for node, i in zip(inventory.gpu_node[counted].tolist(), of[counted].tolist(), strict=True):
        found[node][i] += 1
    return found


def _equal_nodes(inventory: Inventory, among: Bools) -> Iterator[Ints]:
    """Groups of interchangeable nodes (N,): equal in type, size, CPUs, memory, slow GPUs, sets and domain."""
    chosen = np.flatnonzero(among)
    if chosen.size < 2:
        return
    gpus = np.bincount(inventory.gpu_node, minlength=len(among))
    slow = inventory.by_slow_class(np.ones(len(inventory.gpu_node), dtype=np.bool_)).T
    more = [*slow, *([] if inventory.node_sets is None else inventory.node_sets), *inventory.domains]
    kinds = np.column_stack([inventory.node_type, gpus, inventory.node_cpus, inventory.node_memory_mib, *more])[chosen]
    _, group = np.unique(kinds, axis=0, return_inverse=True)
    for g in range(group.max(initial=-1) + 1):
        if (group == g).sum() > 1:
            yield chosen[group == g]


def _kept(here: Sequence[Counter[int]], there: Sequence[Counter[int]], weight: Ints) -> Floats:
    """Weight of the jobs that keep their node if one's content (row) is put on another (column); gangs in parts."""
    gain = np.zeros((len(here), len(there)))
    held = defaultdict[tuple[int, int], list[int]](list)
    for place, content in enumerate(there):
        for job in content.items():
            held[job].append(place)
    parts = Counter(i for content in here for i in content)
    for row, content in enumerate(here):
        for i, gpus in content.items():
            gain[row, held[i, gpus]] += weight[i] / parts[i]
    return gain


def _move(owner: Ints, new: Ints, inventory: Inventory, content: int, place: int) -> None:
    """Put the jobs planned for one node on another: each on the GPUs that it holds there, then on vacant ones."""
    gpus = np.flatnonzero(inventory.gpu_node == place)
    wanted = Counter(owner[(inventory.gpu_node == content) & (owner >= 0)].tolist())
    new[gpus] = -1
    for gpu, holder in zip(gpus.tolist(), inventory.holder[gpus].tolist(), strict=True):
        if wanted[holder] > 0:
            new[gpu] = holder
            wanted[holder] -= 1
    rest = gpus[new[gpus] < 0]
    rest = rest[np.lexsort((inventory.slow_class[rest], ~inventory.vacant[rest]))]
    new[rest[: wanted.total()]] = sorted(wanted.elements())
