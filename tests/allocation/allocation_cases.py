"""Floors and problems small enough to check by hand, and random ones."""

from types import SimpleNamespace

import numpy as np
from hypothesis import strategies as st

from allocation.configurations import Configurations
from allocation.inventory import Inventory
from allocation.problem import Problem, runnable


def build_inventory(node_gpus, jobs, **columns):
    """A floor of nodes by type: node_gpus[j] lists the GPUs of type j's nodes; idle unless told."""
    sizes = [size for of_type in node_gpus for size in of_type]
    defaults = {
        "gpu_node": np.repeat(np.arange(len(sizes)), sizes),
        "node_type": np.repeat(np.arange(len(node_gpus)), [len(of_type) for of_type in node_gpus]),
        "holder": np.full(sum(sizes), -1),
        "releasing": np.zeros(sum(sizes), dtype=bool),
        "node_cpus": np.full(len(sizes), 1e6),
        "node_memory_mib": np.full(len(sizes), 1e9),
        "cpus_per_gpu": np.ones(jobs),
        "memory_per_gpu_mib": np.ones(jobs),
        "uneven": np.zeros(jobs, dtype=bool),
    }
    return Inventory(**defaults | {name: np.asarray(value) for name, value in columns.items()})


@st.composite
def clusters(draw, max_jobs=8, *, busy=False):
    """A random problem and its floor: some types may be empty, some jobs elastic, weights over six orders.

    Where it is busy, some jobs hold GPUs, and some of those are locked. Some are hybrid-parallel: a replica of theirs
    takes several GPUs, by type.
    """
    seed = draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    n, m = draw(st.integers(1, 3)), draw(st.integers(1, max_jobs))
    node_gpus = [rng.choice([1, 2, 4, 8], rng.integers(0, 4)).tolist() for _ in range(n)]
    node_gpus[0] = node_gpus[0] or [4]
    offered = Configurations.of([sizes or [8] for sizes in node_gpus], [1, 2, 4, 8])
    capacity = np.array([sum(sizes) for sizes in node_gpus])
    rate = rng.uniform(0.1, 10, (m, n))[:, offered.gpu_type] * offered.gpus**0.8
    rate *= rng.random(rate.shape) < draw(st.sampled_from([0.3, 0.9]))
    rate[:, 0] = np.maximum(rate[:, 0], 0.5)
    gpus_per_replica = some_hybrid(np.random.default_rng([seed, 1]), rate.shape[0], n)
    rate[offered.gpus % gpus_per_replica[:, offered.gpu_type] > 0] = 0
    able = runnable(rate, offered.usage, capacity)
    rate, gpus_per_replica = rate[able], gpus_per_replica[able]
    weight = 10 ** rng.uniform(-3, 3, len(rate))
    received_s = rng.uniform(0, 1000, (len(rate), n))
    columns = {
        "nodes": offered.nodes,
        "weight": weight,
        "age_s": rng.uniform(0, 1e5, len(rate)),
        "received_s": received_s,
        "remaining_steps": np.where(rng.random(len(rate)) < 0.2, np.inf, 10 ** rng.uniform(1, 6, len(rate))),
        "isolated_s": rng.uniform(0, 1e5, len(rate)),
        "attained_gpu_s": rng.uniform(0, 1e5, len(rate)),
        "deadline_s": np.where(rng.random(len(rate)) < 0.5, np.inf, rng.uniform(-1e3, 1e6, len(rate))),
        "price_per_gpu_hour": rng.choice([0, 0.5, 2, 3.1], n),
        "restart_s": rng.uniform(0, 300, len(rate)),
        "restarts": rng.integers(0, 5, len(rate)),
        "team": np.arange(len(rate)) % 3,
        **tasks_of_arrays(np.random.default_rng([seed, 2]), len(rate)),
        "gpus_per_replica": gpus_per_replica,
        "most_replicas": rng.choice([0, 1, 4, np.inf], len(rate)),
    }
    if busy:
        columns |= running(rng, rate, offered.usage, capacity)
    problem = Problem.of(rate, offered.usage, capacity, **columns)
    uneven = rng.random(len(rate)) < 0.3
    return SimpleNamespace(
        problem=problem, inventory=build_inventory(node_gpus, len(rate), uneven=uneven), node_gpus=node_gpus
    )


def tasks_of_arrays(rng, m):
    """Columns of arrays: some jobs are pilots, some wait for pilots, and some arrays are of unknown size."""
    role = rng.integers(0, 4, m)
    others_gpu_s = np.where(rng.random(m) < 0.2, np.inf, rng.choice([0, 1e3, 1e6], m))
    return {"pilot": role == 1, "unsampled": role == 2, "array_others_gpu_s": np.where(role > 0, others_gpu_s, 0)}


def some_hybrid(rng, m, n):
    """GPUs per replica (m, n): a third of the jobs, never the first, take several of each type."""
    hybrid = rng.random((m, 1)) < 1 / 3
    hybrid[0] = False
    return np.where(hybrid, rng.choice([1, 2, 4], (m, n)), 1)


def running(rng, rate, usage, capacity):
    """Some jobs hold what they can use, as far as it goes; every other one of these is locked."""
    held, left = np.full(len(rate), -1), capacity.copy()
    for i in np.flatnonzero(rng.random(len(rate)) < 0.5):
        fits = np.flatnonzero((rate[i] > 0) & (usage <= left[:, None]).all(axis=0))
        if fits.size:
            held[i] = rng.choice(fits)
            left -= usage[:, held[i]]
    return {"held": held, "locked": (held >= 0) & (rng.random(len(rate)) < 0.5)}
