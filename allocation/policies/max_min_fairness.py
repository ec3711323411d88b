"""Max-min fairness of normalised throughput (Gavel)."""

from numpy import append, column_stack, concatenate, ones, repeat, zeros
from scipy.sparse import block_array, csr_array, eye_array, kron, vstack

from allocation.classes import alike
from allocation.decision import Decision
from allocation.problem import Problem
from allocation.solve import maximize

TIME_LIMIT_S = 60.0
SLACK = 1e-9
"""Relative; the second program starts from the edge of the first, where rounding could make it infeasible."""


def max_min_fairness(problem: Problem) -> Decision:
    r"""Make the worst-off job as fast as possible, relative to its fair share.

    Choose it when teams share GPUs of several types and each is to get its weight's part of the work, on the types
    where its jobs gain most; how long jobs last need not be known.

    .. math::
        \max_{X,\,z}\ z \quad\text{s.t.}\quad
        & \textstyle z - \sum_k a_{ik} X_{ik} \le 0          && \forall i \quad\text{(fair)} \\
        & \textstyle \sum_k X_{ik} \le 1                      && \forall i \quad\text{(time)} \\
        & \textstyle \sum_i \sum_k u_{jk} X_{ik} \le c_j      && \forall j \quad\text{(capacity)} \\
        & 0 \le X_{ik} \le [T_{ik} > 0], \qquad a_{ik} = \frac{g_i}{w_i\,p_i}\, T_{ik}

    Many X reach the best z. Among them a second program takes the one that gets most work done, counted in average
    GPUs, so that what the worst-off job leaves is used, and the answer does not hang on the solver's path:

    .. math::
        \max_X\ \textstyle \sum_{ik} w_i\, a_{ik} X_{ik} \quad\text{s.t. time, capacity and}\quad
        \sum_k \tfrac{a_{ik}}{z^*} X_{ik} \ge 1 \ \ \forall i \quad\text{(no worse)}

    Jobs with equal rows a and equal weights are interchangeable, and some optimum treats them alike: one row stands for
    all N_i of its kind, counted so often in the capacity and in the work. Exact, and the size of the programs is that
    of the kinds, not of the jobs.

    Solved in units of sum(c) / sum(w), the value of an even split, so that the solver's absolute tolerances mean the
    same whatever the unit of the weights.

    Parameters
    ----------
    problem : Problem
        T = rate (m, K) steps/s, u = usage (n, K) GPUs, c = capacity (n,) GPUs, w = weight (m,),
        g = base_gpus (m,), p = base_rate (m,) steps/s on the average GPU.

    Returns
    -------
    Decision
        shares X (m, K), fraction of time, 0 to 1; prices (n,), gain in z per GPU; objective z.

    Raises
    ------
    SolverFailed
        The solver stopped early. Infeasible cannot happen: X = 0, z = 0 is feasible.

    References
    ----------
    .. [1] Narayanan et al., OSDI 2020, "Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning Workloads",
       section 4.1.
    """
    T, u, c, w = problem.rate, problem.usage, problem.capacity, problem.weight
    even = c.sum() / w.sum()
    a = T * (problem.base_gpus / (w * even * problem.base_rate))[:, None]
    kinds = alike(column_stack([a, w]))
    a, w, N = a[kinds.first], w[kinds.first], kinds.count
    m, K = a.shape
    over_k = kron(eye_array(m), ones((1, K)))  # sum_k X[i, k]
    used = kron(N[None, :], u)  # sum_i N_i sum_k u[j, k] X[i, k]
    best = maximize(
        append(zeros(m * K), 1),
        block_array(
            [
                [-over_k.multiply(a.ravel()), csr_array(ones((m, 1)))],  # fair
                [over_k, None],  # time
                [used, None],  # capacity
            ]
        ),
        concatenate([zeros(m), ones(m), c]),
        most=append(a.ravel() > 0, float("inf")),
        time_limit_s=TIME_LIMIT_S,
    )
    full = maximize(
        (a * (N * w)[:, None]).ravel(),
        vstack([-over_k.multiply(a.ravel() / best.value), over_k, used]),  # no worse, time, capacity
        concatenate([repeat(SLACK - 1, m), ones(m), c]),
        most=a.ravel() > 0,
        time_limit_s=TIME_LIMIT_S,
    )
    return Decision.of_shares(
        full.x.reshape(m, K)[kinds.of_row],
        prices=even * best.duals[-c.size :],
        objective=even * best.value,
        bound=even * best.bound,
        status=best.status,
        solve_seconds=best.seconds + full.seconds,
    )
