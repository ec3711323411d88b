"""The program over time as one linear program for HiGHS: the referee of the tests and of the benchmark."""

import numpy as np
import scipy

from allocation.plan.program import PlanProgram
from allocation.solvers.linear_program import Solution, maximize


def plain_program(program: PlanProgram, *, time_limit_s: float | None = None) -> Solution:
    """Solve the program above by HiGHS, all rows in one; its value is minus the cost.

    The duals are those of the rows in the order of the formula: time (m Q), work (m), capacity (T n); what a second, a
    job without work, and a GPU-second save.

    Raises
    ------
    SolverFailed
        Time ran out.
    """
    T, S, N = program.rate, program.steps, program.count
    m, Q, n, intervals = len(T), program.length_s.shape[1], len(program.usage), len(program.ends_s)
    i, k = program.possible.nonzero()
    i, k, q = np.repeat(i, Q), np.repeat(k, Q), np.tile(np.arange(Q), i.size)
    x, z = np.arange(i.size), i.size + np.arange(m)
    f = T[i, k] / S[i]
    u = program.usage[:, k] * (N * program.probability)[i]
    in_interval = q // max(program.pieces, 1)
    rows = np.concatenate(
        [i * Q + q, m * Q + i, m * Q + np.arange(m), *(m * Q + m + in_interval * n + j for j in range(n))]
    )
    columns = np.concatenate([x, x, z, *(x for _ in range(n))])
    entries = np.concatenate([np.ones(x.size), -f, -np.ones(m), *u])
    shape = (m * Q + m + intervals * n, x.size + m)
    return maximize(
        -np.concatenate([N[i] * program.cost_h[i, q] * f, N * program.late_h]),
        scipy.sparse.csr_array((entries, (rows, columns)), shape=shape),
        np.concatenate([program.length_s.ravel(), -np.ones(m), program.room.ravel()]),
        time_limit_s=time_limit_s,
    )
