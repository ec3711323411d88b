"""Fairness between teams, and within each of them fairness or first come, first served (Gavel)."""

from collections.abc import Callable
from typing import Annotated, Literal

from numpy import (
    arange,
    bincount,
    clip,
    column_stack,
    diff,
    divide,
    flatnonzero,
    lexsort,
    maximum,
    minimum,
    split,
    unique,
    where,
    zeros_like,
)

from allocation.arrays import Floats, Ints
from allocation.classes import alike
from allocation.deadline import Deadline
from allocation.decision import Decision
from allocation.levels import Due, fill_levels
from allocation.parameters import Choice
from allocation.problem import Problem


def hierarchical_fairness(
    problem: Problem,
    *,
    within: Annotated[
        Literal["fairness", "fifo"], Choice("whether a team's jobs share what it gets, or are served by age")
    ] = "fairness",
) -> Decision:
    r"""Let all teams rise together, each by its weight; what a job cannot use goes to the others of its team first.

    Choose it when teams are to fare by their weights, however many jobs they have; the jobs of a team share what it
    gets, or queue for it.

    At level z the normalised rates of a team's jobs sum to its weight times z, as long as they can:

    .. math::
        \max_{X,\,z}\ z \quad\text{s.t.}\quad
        & \textstyle r_i(z) - \sum_k a_{ik} X_{ik} \le 0      && \forall i \quad\text{(what it is due)} \\
        & \textstyle \sum_k X_{ik} \le 1                      && \forall i \quad\text{(time)} \\
        & \textstyle \sum_i \sum_k u_{jk} X_{ik} \le c_j      && \forall j \quad\text{(capacity)}, \qquad
          a_{ik} = \frac{g_i}{p_i}\, T_{ik}

    .. math::
        \textstyle\sum_{i \in e} r_i(z) = \min\left(W_e\, z,\ \sum_{i \in e} b_i\right), \qquad W_e = \sum_{i \in e} w_i

    b is the most that a job can reach, at first what it does in all of its time. The jobs of a team rise by weight, or
    one after the other by age:

    .. math::
        r_i(z) = \min(b_i,\ w_i\, \theta_e(z)) \qquad\text{or}\qquad
        r_i(z) = \min\left(b_i,\ \max\left(0,\ W_e\, z - \textstyle\sum_{k \text{ before } i} b_k\right)\right)

    Whom capacity stops at the best z stays there: what he has is his b from now on, so that his part of the team's
    weight goes to its other jobs, and the level rises again, until nobody can rise. The weight of a team is that of its
    jobs together, over which the service has split it.

    Parameters
    ----------
    problem : Problem
        T = rate (m, K) steps/s, u = usage (n, K) GPUs, c = capacity (n,) GPUs, w = weight (m,), e = team (m,),
        g = base_gpus (m,), p = base_rate (m,) steps/s on the average GPU, age_s (m,).
    within : as said there.

    Returns
    -------
    Decision
        shares X (m, K), fraction of time, 0 to 1; objective z, the level up to which all teams rise before capacity
        first stops a job; prices (n,), what one more GPU adds to it.

    Raises
    ------
    SolverFailed
        The solver stopped early. Infeasible cannot happen: X = 0, z = 0 is feasible.

    References
    ----------
    .. [1] Narayanan et al., OSDI 2020, "Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning Workloads",
       section 4.3.
    """
    deadline = Deadline.of(problem)
    T, g, w, p = problem.rate, problem.base_gpus, problem.weight, problem.base_rate
    a, e = T * (g / p)[:, None], unique(problem.team, return_inverse=True)[1]
    queues = within == "fifo"
    kinds = alike(column_stack([a, w, e, arange(len(w)) if queues else zeros_like(w)]))
    rows, N = kinds.first, kinds.count
    a, w, e, age_s = a[rows], w[rows], e[rows], problem.age_s[rows]
    best = fill_levels(
        a,
        problem.usage,
        problem.capacity,
        _one_by_one(w, e, age_s) if queues else _together(w, e, N),
        ceiling=(bincount(e, N * a.max(axis=1)) / bincount(e, N * w))[e],
        kinds=kinds,
        deadline=deadline,
    )
    return best.decision


def _together(w: Floats, e: Ints, N: Ints) -> Due:
    """The jobs of a team rise by weight; who is full, as b is all that he can reach, leaves his part to the others."""
    W = bincount(e, N * w)

    def of_those_who_reach(b: Floats) -> Callable[[float], Floats]:
        full_at = zeros_like(b)
        for rows in _by_team(e, b / w):
            full, part = (N * b)[rows].cumsum(), (N * w)[rows].cumsum()
            full_at[rows] = (full + (b / w)[rows] * (part[-1] - part)) / part[-1]

        def due(z: float) -> Floats:
            full = z >= full_at
            left = maximum(W * z - bincount(e, N * b * full, len(W)), 0)
            open_w = bincount(e, N * w * ~full, len(W))
            theta = divide(left, open_w, out=zeros_like(W), where=open_w > 0)
            rates: Floats = where(full, b, minimum(b, w * theta[e]))
            return rates

        return due

    return of_those_who_reach


def _one_by_one(w: Floats, e: Ints, age_s: Floats) -> Due:
    """The oldest job of a team gets all that is the team's, up to b, then the next."""
    W = bincount(e, w)[e]

    def of_those_who_reach(b: Floats) -> Callable[[float], Floats]:
        before = zeros_like(b)
        for rows in _by_team(e, -age_s):
            before[rows] = b[rows].cumsum() - b[rows]
        return lambda z: clip(W * z - before, 0, b)

    return of_those_who_reach


def _by_team(e: Ints, key: Floats) -> list[Ints]:
    """The rows of each team, by the key."""
    turn = lexsort((key, e))
    return split(turn, flatnonzero(diff(e[turn])) + 1)
