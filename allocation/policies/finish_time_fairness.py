"""Finish-time fairness (Themis' rho, as a program of Gavel's)."""

from typing import Annotated

from numpy import column_stack, errstate, isfinite, maximum, minimum, where

from allocation.arrays import Floats
from allocation.classes import alike
from allocation.deadline import Deadline
from allocation.decision import Decision
from allocation.levels import each_alone, fill_levels
from allocation.packed_levels import PACKED, pack_levels
from allocation.parameters import Switch
from allocation.problem import Problem


def finish_time_fairness(
    problem: Problem, *, packed: Annotated[bool, Switch(PACKED, simulated=True)] = False
) -> Decision:
    r"""Let nobody finish much later than on a cluster of his own, of which he has one part in m.

    Choose it when people compare when they are done with when they would have been done on GPUs of their own.

    .. math::
        \min_{X}\ \max_i\ \rho_i = \frac{t_i + r_i / \sum_k T_{ik} X_{ik}}{I_i + r_i / S_i}
        \quad\text{s.t.}\quad
        & \textstyle \sum_k X_{ik} \le 1                      && \forall i \quad\text{(time)} \\
        & \textstyle \sum_i \sum_k u_{jk} X_{ik} \le c_j      && \forall j \quad\text{(capacity)}, \qquad
          S_i = p_i \min\!\left(1, \tfrac{\sum c}{m\,g_i}\right)

    Solved by levels z = 1/rho, where job i needs the rate

    .. math::
        \textstyle\sum_k T_{ik} X_{ik} \ \ge\ \frac{z\, r_i}{I_i + r_i / S_i - z\, t_i}

    and, where its length is unknown, the limit of that, :math:`z\, S_i`. What a job cannot reach even alone is not
    asked of it. The next to last levels follow, so that what the worst-off leaves is used. Weights do not count.

    Parameters
    ----------
    problem : Problem
        T = rate (m, K) steps/s, r = remaining_steps (m,), t = age_s (m,), I = isolated_s (m,) seconds that the work so
        far would have taken alone, u = usage (n, K) GPUs, c = capacity (n,) GPUs, g = base_gpus, p = base_rate (m,).
    packed : bool
        The time (pairs) that two jobs spend on the same GPUs is chosen, too, by their workload and kept_rate: see
        `allocation.packing`. The promise is the same for the ten lowest levels; above, nobody has less than the tenth.

    Returns
    -------
    Decision
        shares X (m, K), fraction of time; objective the highest rho, the least is best; prices (n,), by how much one
        more GPU lowers the rho of those whom capacity holds up most.

    Raises
    ------
    SolverFailed
        The solver stopped early. Infeasible cannot happen: X = 0, z = 0 is feasible.

    References
    ----------
    .. [1] Mahajan et al., NSDI 2020, "Themis: Fair and Efficient GPU Cluster Scheduling", section 3.
    .. [2] Narayanan et al., OSDI 2020, "Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning Workloads",
       section 4.2.
    """
    deadline = Deadline.of(problem)
    T, t, p, c = problem.rate, problem.age_s, problem.base_rate, problem.capacity
    S = p * minimum(1, c.sum() / (len(p) * problem.base_gpus))
    r = maximum(problem.remaining_steps, p)  # what is at its last step still has a second to go
    alone_s = problem.isolated_s + r / S
    columns = [T, r, t, alone_s, S, problem.workload][: 6 if packed else 5]
    kinds = alike(column_stack(columns))
    rows = kinds.first
    T, t, S, r, alone_s = T[rows], t[rows], S[rows], r[rows], alone_s[rows]
    known, fastest = isfinite(r), T.max(axis=1)
    steps, whole_s, past_s = where(known, r, S), where(known, alone_s, 1), where(known, t, 0)

    def need(z: float) -> Floats:
        with errstate(divide="ignore"):  # what is due at once takes any rate
            wanted: Floats = z * steps / maximum(whole_s - z * past_s, 0)
        return wanted

    ceiling = where(known, alone_s, fastest / S) / where(known, t + where(known, r, 0) / fastest, 1)
    if packed:
        return pack_levels(problem, kinds, need, ceiling=ceiling).inverse_decision
    best = fill_levels(T, problem.usage, c, each_alone(need), ceiling=ceiling, kinds=kinds, deadline=deadline)
    return best.inverse_decision
