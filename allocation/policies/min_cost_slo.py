"""Most work for the money, deadlines first (Gavel)."""

from numpy import divide, isfinite, maximum, where, zeros_like

from allocation.arrays import Floats
from allocation.deadline import Deadline
from allocation.decision import Decision
from allocation.policies.min_cost import dollars_per_hour
from allocation.problem import Problem
from allocation.worth import least_shortfall, most_worth


def min_cost_slo(problem: Problem) -> Decision:
    r"""Get the most steps per dollar of those allocations that meet the deadlines.

    Choose it when GPUs are paid by the hour and some jobs have deadlines.

    .. math::
        \max_X\ \textstyle\sum_{ik} w_i\, \frac{T_{ik}}{\pi_k} X_{ik} \quad\text{s.t.}\quad
        & \textstyle \sum_k T_{ik} X_{ik} \ge l_i = \frac{r_i}{\text{deadline}_i}  && \forall i \quad\text{(in time)} \\
        & \textstyle \sum_k X_{ik} \le 1                      && \forall i \quad\text{(time)} \\
        & \textstyle \sum_i \sum_k u_{jk} X_{ik} \le c_j      && \forall j \quad\text{(capacity)}

    Where not all deadlines can be met together, those rates are demanded that come nearest, by the least sum of
    shortfalls (Gavel drops all deadlines then). One that is past, or out of reach even alone, binds nobody.

    Parameters
    ----------
    problem : Problem
        T = rate (m, K) steps/s, r = remaining_steps (m,), deadline_s (m,) seconds from now, price_per_gpu_hour (n,),
        u = usage (n, K) GPUs, c = capacity (n,) GPUs, w = weight (m,).

    Returns
    -------
    Decision
        shares X (m, K), fraction of time; prices (n,), gain per GPU; objective: weighted steps/s per dollar/h.

    Raises
    ------
    SolverFailed
        The solver stopped early; at the round's time limit, if any rate is demanded. Infeasible cannot happen: some X
        reaches the rates demanded.

    References
    ----------
    .. [1] Narayanan et al., OSDI 2020, "Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning Workloads",
       section 4.2.
    """
    T, u, c = problem.rate, problem.usage, problem.capacity
    deadline = Deadline.of(problem)
    least = least_shortfall(T, u, c, _rates_in_time(problem), deadline=deadline)
    b = T * problem.weight[:, None] / dollars_per_hour(problem)
    best = most_worth(b, T, u, c, least=least, deadline=deadline)
    return best.decision


def _rates_in_time(problem: Problem) -> Floats:
    """The rate (m,) by which each job would be done in time; 0 where it has no deadline, or cannot meet it alone."""
    r, d = problem.remaining_steps, problem.deadline_s
    bound = isfinite(r) & isfinite(d) & (d > 0)
    rate = divide(where(bound, r, 0), d, out=zeros_like(r), where=bound)
    return where(rate <= problem.rate.max(axis=1, initial=0), maximum(rate, 0), 0.0)
