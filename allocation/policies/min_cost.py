"""Most work for the money (Gavel)."""

from numpy import where

from allocation.arrays import Floats
from allocation.deadline import Deadline
from allocation.decision import Decision
from allocation.problem import Problem
from allocation.worth import most_worth

FREE = 1e-2
"""What a GPU without a price counts as, of the least price that there is."""


def min_cost(problem: Problem) -> Decision:
    r"""Get the most steps per dollar: each job on the GPUs that are cheapest for it, as far as they go.

    Choose it when GPUs are paid by the hour and nothing is urgent.

    .. math::
        \max_X\ \textstyle\sum_{ik} w_i\, \frac{T_{ik}}{\pi_k} X_{ik} \quad\text{s.t.}\quad
        & \textstyle \sum_k X_{ik} \le 1                      && \forall i \quad\text{(time)} \\
        & \textstyle \sum_i \sum_k u_{jk} X_{ik} \le c_j      && \forall j \quad\text{(capacity)}, \qquad
          \pi_k = \textstyle\sum_j u_{jk}\, \text{price}_j

    Gavel divides by the price of one GPU; a gang pays for all of its GPUs here. A GPU without a price counts as a
    hundredth of the cheapest one that has a price; where none has, all cost the same.

    Parameters
    ----------
    problem : Problem
        T = rate (m, K) steps/s, price_per_gpu_hour (n,), u = usage (n, K), c = capacity (n,) GPUs, w = weight (m,).

    Returns
    -------
    Decision
        shares X (m, K), fraction of time; prices (n,), gain per GPU; objective: weighted steps/s per dollar/h.
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
    T = problem.rate
    b = T * problem.weight[:, None] / dollars_per_hour(problem)
    best = most_worth(b, T, problem.usage, problem.capacity, deadline=Deadline.of(problem))
    return best.decision


def dollars_per_hour(problem: Problem) -> Floats:
    """What each configuration (K,) costs, more than nothing."""
    price = problem.price_per_gpu_hour
    least = price[price > 0].min(initial=1 / FREE) if (price > 0).any() else 1 / FREE
    cost: Floats = where(price > 0, price, FREE * least) @ problem.usage
    return cost
