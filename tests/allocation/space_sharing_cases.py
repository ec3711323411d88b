"""Jobs of some workloads that may share GPUs: random ones, and the linear program that names every pair."""

import numpy as np
from hypothesis import strategies as st
from scipy.optimize import linprog

from allocation.configurations import Configurations
from allocation.problem import Problem, SpaceSharing, runnable, sharing_of
from allocation.space_sharing.pair_rows import rate_beside


def shared_rates(rng, workloads, configurations):
    """What is kept beside each other: some pairs cannot be together, some had better not."""
    kept = rng.uniform(0.2, 1, (workloads, workloads, configurations))
    together = rng.random(kept.shape) < 0.8
    return kept * (together & together.transpose(1, 0, 2))


@st.composite
def sharing(draw, max_jobs=7):
    """A random problem whose jobs have gangs of their own, some workload or none, and weights over two orders."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n, m, S = draw(st.integers(1, 3)), draw(st.integers(1, max_jobs)), draw(st.integers(1, 3))
    node_gpus = [rng.choice([1, 2, 4], rng.integers(1, 3)).tolist() for _ in range(n)]
    offered = Configurations.of(node_gpus, [1, 2])
    capacity = np.array([sum(sizes) for sizes in node_gpus])
    of_workload = rng.uniform(0.1, 10, (S, n))[:, offered.gpu_type] * offered.gpus**0.8
    workload, gang = rng.integers(0, S, m), rng.choice([1, 2], m)
    rate = np.where(offered.gpus == gang[:, None], of_workload[workload], 0)
    runs = runnable(rate, offered.usage, capacity)
    if not runs.any():
        rate, runs = of_workload[workload], np.ones(m, dtype=bool)
    workload[rng.random(m) < 0.2] = -1
    columns = {
        "nodes": offered.nodes,
        "weight": 10 ** rng.uniform(-1, 1, m) if draw(st.booleans()) else np.ones(m),
        "age_s": rng.uniform(0, 1e5, m),
        "remaining_steps": np.where(rng.random(m) < 0.2, np.inf, 10 ** rng.uniform(1, 6, m)),
        "isolated_s": rng.uniform(0, 1e5, m),
        "received_s": rng.uniform(0, 1000, (m, n)),
    }
    chosen = {name: value[runs] if len(value) == m and name != "nodes" else value for name, value in columns.items()}
    shared = SpaceSharing.of(workload[runs], shared_rates(rng, S, len(offered.nodes)), types=n)
    return Problem.of(rate[runs], offered.usage, capacity, sharing=shared, **chosen)


def alone(problem):
    """The same problem without space sharing."""
    return Problem.of(
        **{
            name: getattr(problem, name)
            for name in ("rate", "usage", "capacity", "weight", "age_s", "remaining_steps", "isolated_s", "received_s")
        }
    )


def reached(problem, decision):
    """What each job does, in steps/s."""
    return (problem.rate * decision.shares).sum(axis=1) + rates_together(problem, decision.pairs)


def plain_level(problem, a, least=None, rising=None):
    """The highest z that all rates times a (m,) reach, by one program with a column for every pair of jobs.

    With least rates, z counts for the rising jobs only.
    """
    T, (m, K), shared = problem.rate, problem.rate.shape, sharing_of(problem)
    h, w = shared.kept_rate, shared.workload
    columns = [((i,), k, (T[i, k],)) for i, k in zip(*T.nonzero(), strict=True)]
    for i in range(m):
        for j in range(i + 1, m):
            if min(w[i], w[j]) < 0:
                continue
            one, other = (h[w[x], w[y]] * T[x] for x, y in ((i, j), (j, i)))
            columns += [((i, j), k, (one[k], other[k])) for k in range(K) if one[k] > 0 and other[k] > 0]
    n, V = len(problem.capacity), len(columns)
    rising = np.ones(m, dtype=bool) if rising is None else rising
    rows, limits = np.zeros((2 * m + n, V + 1)), np.concatenate([np.zeros(m), np.ones(m), problem.capacity])
    rows[:m, V][rising] = 1
    limits[:m] = np.where(rising, 0, 0 if least is None else -least * a)
    for v, (jobs, k, rates) in enumerate(columns):
        rows[2 * m :, v] = problem.usage[:, k]
        for i, rate in zip(jobs, rates, strict=True):
            rows[i, v], rows[m + i, v] = -rate * a[i], 1
    return -linprog(-np.eye(V + 1)[V], rows, limits).fun


def time_together(pairs, jobs):
    """The time (m, K) that each job spends together with others."""
    time = np.zeros((jobs, pairs.shares.shape[1]))
    for side in pairs.rows.T:
        np.add.at(time, side, pairs.shares)
    return time


def gpus_together(pairs, usage):
    """GPUs (n,) that pairs use on average: those of a pair are counted once."""
    return usage @ pairs.shares.sum(axis=0)


def rates_together(problem, pairs):
    """What each job (m,) does in the time that it shares, in steps/s."""
    rate = np.zeros(len(problem.weight))
    for first, second in (pairs.rows.T, pairs.rows.T[::-1]):
        np.add.at(rate, first, (rate_beside(problem, first, second) * pairs.shares).sum(axis=1))
    return rate
