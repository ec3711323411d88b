"""Max-min fairness of normalised throughput (Gavel)."""

from typing import Annotated

from allocation.deadline import Deadline
from allocation.decision import Decision
from allocation.levels import fill_evenly
from allocation.packed_levels import PACKED, pack_evenly
from allocation.parameters import Switch
from allocation.problem import Problem


def max_min_fairness(problem: Problem, *, packed: Annotated[bool, Switch(PACKED, simulated=True)] = False) -> Decision:
    r"""Make the worst-off job as fast as possible, relative to its fair share; then the next.

    Choose it when many people share the cluster, and each is to get as much work done as a fair part of it would do.

    .. math::
        \max_{X,\,z}\ z \quad\text{s.t.}\quad
        & \textstyle z - \sum_k a_{ik} X_{ik} \le 0          && \forall i \quad\text{(fair)} \\
        & \textstyle \sum_k X_{ik} \le 1                      && \forall i \quad\text{(time)} \\
        & \textstyle \sum_i \sum_k u_{jk} X_{ik} \le c_j      && \forall j \quad\text{(capacity)} \\
        & 0 \le X_{ik} \le [T_{ik} > 0], \qquad a_{ik} = \frac{g_i}{w_i\,p_i}\, T_{ik}

    Many X reach the best z. The second phase takes the lexicographic one: those whom capacity stops at z stay there,
    and the level of the others rises until capacity, or their own time, stops them too. So the slack goes to whoever is
    next worst off, and the answer does not hang on a solver's path.

    Parameters
    ----------
    problem : Problem
        T = rate (m, K) steps/s, u = usage (n, K) GPUs, c = capacity (n,) GPUs, w = weight (m,),
        g = base_gpus (m,), p = base_rate (m,) steps/s on the average GPU.
    packed : bool
        The time (pairs) that two jobs spend on the same GPUs is chosen, too, by their workload and kept_rate: see
        `allocation.packing`. The promise is the same for the ten lowest levels; above, nobody has less than the tenth.

    Returns
    -------
    Decision
        shares X (m, K), fraction of time, 0 to 1; prices (n,), what one more GPU adds to the level of those whom
        capacity stops first; objective z.

    Raises
    ------
    SolverFailed
        The solver stopped early. Infeasible cannot happen: X = 0, z = 0 is feasible.

    References
    ----------
    .. [1] Narayanan et al., OSDI 2020, "Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning Workloads",
       sections 4.1 and 4.3.
    """
    T, g, w, p = problem.rate, problem.base_gpus, problem.weight, problem.base_rate
    scale = g / (w * p)
    if packed:
        return pack_evenly(problem, scale).decision
    best = fill_evenly(T * scale[:, None], problem.usage, problem.capacity, deadline=Deadline.of(problem))
    return best.decision
