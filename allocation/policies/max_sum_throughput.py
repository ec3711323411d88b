"""Most throughput in total (Gavel)."""

from typing import Annotated

from allocation.deadline import Deadline
from allocation.decision import Decision
from allocation.parameters import Switch
from allocation.problem import Problem
from allocation.worth import most_worth


def max_sum_throughput(
    problem: Problem,
    *,
    normalised: Annotated[
        bool, Switch("count work in average GPUs, so that a step of one model is not worth more than of another")
    ] = False,
) -> Decision:
    r"""Get as many steps done as possible, by whomever.

    Choose it when the cluster belongs to one owner who wants it used best; jobs that gain little may starve. Steps of
    different models are hardly comparable: then set `normalised`.

    .. math::
        \max_X\ \textstyle\sum_{ik} w_i\, b_{ik} X_{ik} \quad\text{s.t.}\quad
        & \textstyle \sum_k X_{ik} \le 1                      && \forall i \quad\text{(time)} \\
        & \textstyle \sum_i \sum_k u_{jk} X_{ik} \le c_j      && \forall j \quad\text{(capacity)}

    with b = T, as published, or, normalised, b = T g / p.

    Parameters
    ----------
    problem : Problem
        T = rate (m, K) steps/s, u = usage (n, K) GPUs, c = capacity (n,) GPUs, w = weight (m,), g = base_gpus (m,),
        p = base_rate (m,) steps/s on the average GPU.
    normalised : whether steps count by the work in them.

    Returns
    -------
    Decision
        shares X (m, K), fraction of time; prices (n,), gain per GPU; objective: weighted steps/s, or average GPUs.
        At the round's time limit the answer by prices, with the status `limit`.

    Raises
    ------
    SolverFailed
        The solver stopped early. Infeasible cannot happen: X = 0 is feasible.

    References
    ----------
    .. [1] Narayanan et al., OSDI 2020, "Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning Workloads",
       section 4.2.
    """
    T, g, w, p = problem.rate, problem.base_gpus, problem.weight, problem.base_rate
    b = T * (w * g / p if normalised else w)[:, None]
    best = most_worth(b, T, problem.usage, problem.capacity, deadline=Deadline.of(problem))
    return best.decision
