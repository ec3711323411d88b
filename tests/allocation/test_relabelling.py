"""Relabelling of equal nodes: the same jobs together, and as few moves as an exchange of nodes allows."""

from collections import Counter

import numpy as np
import pytest

from allocation.rounds.relabelling import relabelled
from tests.allocation.allocation_cases import build_inventory


def contents(owner, inventory):
    """What lies together on nodes, whichever they are."""
    nodes = range(len(inventory.node_type))
    return Counter(tuple(sorted(Counter(owner[inventory.gpu_node == v].tolist()).items())) for v in nodes)


def moved(owner, inventory, rows):
    """Rows that hold GPUs and are to own some on other nodes."""
    on = [[Counter(inventory.gpu_node[of == i].tolist()) for i in rows] for of in (owner, inventory.holder)]
    return [i for i, new, old in zip(rows, *on, strict=True) if old and new != old]


def test_gangs_that_would_change_places_stay():
    inventory = build_inventory([[2, 2]], 2, holder=[0, 0, 1, 1])
    none, all_ = np.zeros(2, dtype=bool), np.ones(2, dtype=bool)
    assert relabelled(np.array([1, 1, 0, 0]), inventory, all_, none).tolist() == [0, 0, 1, 1]


def test_nodes_of_other_sizes_are_not_exchanged():
    inventory = build_inventory([[2, 3]], 2, holder=[0, 0, 1, 1, -1])
    owner = np.array([1, 1, 0, 0, -1])
    assert relabelled(owner, inventory, np.ones(2, dtype=bool), np.zeros(2, dtype=bool)).tolist() == owner.tolist()


def test_a_locked_job_keeps_its_node_though_two_others_move_for_that():
    inventory = build_inventory([[3, 3]], 3, holder=[0, -1, -1, 1, 2, -1])
    owner = np.array([0, 1, 2, -1, -1, -1])
    locked = np.array([True, False, False])
    assert moved(relabelled(owner, inventory, np.ones(3, dtype=bool), locked), inventory, range(3)) == [1, 2]
    assert moved(
        relabelled(owner, inventory, np.ones(3, dtype=bool), ~np.ones(3, dtype=bool)), inventory, range(3)
    ) == [0]


@pytest.mark.parametrize("seed", range(30))
def test_the_same_jobs_lie_together_and_never_more_of_them_move(seed):
    rng = np.random.default_rng(seed)
    node_gpus = [[4] * 6, [2] * 3]
    G, jobs = 30, 12
    holder, owner = (np.where(rng.random(G) < 0.7, rng.integers(0, jobs, G), -1) for _ in range(2))
    inventory = build_inventory(node_gpus, jobs, holder=holder)
    stays, locked = rng.random(jobs) < 0.7, np.zeros(jobs, dtype=bool)
    after = relabelled(owner, inventory, stays, locked)
    assert contents(after, inventory) == contents(owner, inventory)
    assert len(moved(after, inventory, np.flatnonzero(stays).tolist())) <= len(
        moved(owner, inventory, np.flatnonzero(stays).tolist())
    )
