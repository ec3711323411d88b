"""Synergy-OPT: the best CPUs and memory for jobs on one large server, and their fractional spread over nodes."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy

from allocation.cpu_memory.sensitivity import Sensitivity
from allocation.solvers.linear_program import maximize
from allocation.types import Floats, Ints

WHOLE = 1e-6
"""A part of a job that is less is a rounding error."""


@dataclass(frozen=True, eq=False)
class BestShares:
    """Optimum of the first program: amount (m, 2) per GPU, throughput (m,), their sum, and the bound on it."""

    amount: Floats
    throughput: Floats
    value: float
    bound: float


def best_shares(
    jobs: Sequence[Sensitivity], size: Ints, floor: Floats, capacity: Floats, *, whole: bool = True, gap: float = 1e-3
) -> BestShares:
    r"""Maximise the sum of throughputs as if all nodes were one server, with no job below its floor's throughput.

    .. math::
        \max_y\ \textstyle\sum_i \sum_p W_{ip}\, y_{ip} \quad\text{s.t.}\quad
        & \textstyle \sum_p y_{ip} \le 1                                   && \forall i \quad\text{(one point)} \\
        & \textstyle \sum_i \sum_p g_i\, a_{p}\, y_{ip} \le C               && \text{(capacity)} \\
        & \textstyle -\sum_p W_{ip}\, y_{ip} \le -W_i(\text{floor})         && \forall i \quad\text{(floor)}

    Parameters
    ----------
    jobs : W = throughput (C, M) at each point p = (CPUs, memory) of a job's matrix, with amounts a.
    size : g = (m,) int, GPUs; floor : (m, 2) per GPU; capacity : C = (2,), CPUs and GiB of all nodes together.
    whole : y in {0, 1}, up to the relative gap; if not, the linear relaxation, whose value bounds any placement's.

    Raises
    ------
    SolverFailed
        The floors do not fit, or the solver stopped early.

    References
    ----------
    .. [1] Mohan et al., OSDI 2022, "Looking Beyond GPUs for DNN Scheduling on Multi-Tenant Clusters", section 4.1.
    """
    points = [_points(job) for job in jobs]
    W, a = np.concatenate([rate for _, rate in points]), np.concatenate([amount for amount, _ in points])
    job = np.repeat(np.arange(len(jobs)), [len(rate) for _, rate in points])
    least = np.array([one.at(amount) for one, amount in zip(jobs, floor, strict=True)])
    of_job = scipy.sparse.csr_array((np.ones(W.size), (job, np.arange(W.size))))
    rows = scipy.sparse.vstack([of_job, (size[job, None] * a).T, -of_job.multiply(W)])
    upper = np.concatenate([np.ones(len(jobs)), capacity, -least])
    integrality = np.ones(W.size, dtype=np.int64) if whole else None
    found = maximize(W, rows, upper, most=1.0, integrality=integrality, gap=gap)
    return BestShares(of_job @ (found.x[:, None] * a), of_job @ (found.x * W), found.value, found.bound)


def _points(job: Sensitivity) -> tuple[Floats, Floats]:
    """Amounts (P, 2) and throughputs (P,) of the points of a matrix."""
    cpus, memory = np.meshgrid(job.cpus, job.memory_gib, indexing="ij")
    return np.stack([cpus.ravel(), memory.ravel()], axis=1), job.throughput.ravel()


def fractional_spread(size: Ints, amount: Floats, node_gpus: Ints, capacity: Floats) -> Floats:
    r"""Spread jobs over nodes in parts x (m, N), a vertex of the second program: few jobs are on several nodes.

    .. math::
        \textstyle \sum_s x_{is} = 1\ \forall i, \qquad
        \sum_i (g_i, g_i a_i)\, x_{is} \le (G_s, C_s)\ \forall s, \qquad x \ge 0

    It is a bound and no placement: a part of a GPU serves no gang.

    Parameters
    ----------
    size, amount : g = (m,) int, GPUs, and a = (m, 2), CPUs and GiB per GPU.
    node_gpus, capacity : G = (N,) int, and C = (N, 2), CPUs and GiB of each node.

    Raises
    ------
    SolverFailed
        There is no such spread.
    """
    m, N = len(size), len(node_gpus)
    need = size[:, None] * np.column_stack([np.ones(m), amount])
    of_nodes = scipy.sparse.kron(need.T, scipy.sparse.eye_array(N))
    of_jobs = scipy.sparse.kron(scipy.sparse.eye_array(m), np.ones((1, N)))
    upper = np.concatenate([np.column_stack([node_gpus, capacity]).T.ravel(), -np.ones(m)])
    found = maximize(-np.ones(m * N), scipy.sparse.vstack([of_nodes, -of_jobs]), upper)  # so that no sum exceeds 1
    return found.x.reshape(m, N)


def split_jobs(parts: Floats) -> int:
    """Number of jobs that a spread (m, N) puts on several nodes."""
    return int((np.count_nonzero(parts > WHOLE, axis=1) > 1).sum())
