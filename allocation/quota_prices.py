"""Shadow prices of quotas on GPU types, by a linear program of least waiting."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy import eye, ones, zeros

from allocation.problem import Problem
from allocation.quota_lending import TypeQuotas
from allocation.solvers.linear_program import SolverFailed, maximize
from allocation.types import Floats, Ints

TOLERANCE = 1e-7
"""Gains up to this are rounding errors."""
NONE = 2**40
"""In place of GPUs: no configuration."""


def quota_prices(problem: Problem, quotas: TypeQuotas, *, time_limit_s: float | None = None) -> Floats:
    r"""Waiting that one more GPU in each quota (T, n) would save: how many more jobs would run at once.

    .. math::
        V(q) = \max_{X \ge 0,\ e \ge 0}\ \textstyle\sum_{ik} X_{ik} \quad\text{s.t.}\quad
        & \textstyle \sum_k X_{ik} \le 1                        && \forall i \quad\text{(time)} \\
        & \textstyle \sum_t x_{tj} \le c_j                      && \forall j \quad\text{(capacity)} \\
        & x_{tj} \le m_{tj}                                    && \forall t, j \quad\text{(limit)} \\
        & x_{tj} - e_{tj} \le r_{tj}                            && \forall t, j \quad\text{(withheld)} \\
        & \textstyle \sum_t e_{tj} \le \max(c_j - \sum_t r_{tj},\ 0) && \forall j \quad\text{(lent)}

    x_tj are the GPUs of type j that the jobs of team t use in their smallest configurations, of which k counts one per
    type; teams without a quota are one more team, for which m is infinite and r is 0. What a team leaves of its quota
    is lent, so that beside m only r, what is never lent, keeps jobs from GPUs. The price of the quota of team t on type
    j is V(q + e_tj) - V(q), in jobs: a waiting job adds an hour to the waiting in each hour, so that a price of 1 all
    day is 24 hours of waiting a day. V is concave: only quotas whose limits have a dual can have a price, and the
    program is solved again for these alone. Jobs of a team that are alike in X are one variable.

    Parameters
    ----------
    quotas : m = most (T, n), r = withheld (T, n), both less what attempts outside the round use.

    Raises
    ------
    SolverFailed
        The time limit came first.
    """
    program = _Program.of(problem, quotas)
    now, duals = program.solved(program.limit, time_limit_s)
    prices = np.zeros(program.limit.shape)
    for t, j in np.argwhere(duals > TOLERANCE).tolist():
        more = program.limit.copy()
        more[t, j] += 1
        gain = program.solved(more, time_limit_s)[0] - now
        prices[t, j] = gain if gain > TOLERANCE else 0.0
    return prices[:-1]


def known_prices(problem: Problem, quotas: TypeQuotas, *, time_limit_s: float | None = None) -> Floats | None:
    """The prices above; None: the solver failed, and they are not known."""
    try:
        return quota_prices(problem, quotas, time_limit_s=time_limit_s)
    except SolverFailed:
        return None


@dataclass(frozen=True, eq=False)
class _Program:
    """The program above: V variables, each a class of C like jobs on one type, with its team; the last has no quota."""

    gpus: Floats
    """Smallest configuration of each variable (V,)."""
    place: Ints
    """Index of team and type of each variable (V,)."""
    of_class: Ints
    """The class of each variable (V,)."""
    jobs: Floats
    """How many jobs each class (C,) has."""
    capacity: Floats
    limit: Floats
    """m (T + 1, n)."""
    withheld: Floats
    """r (T + 1, n)."""

    @classmethod
    def of(cls, problem: Problem, quotas: TypeQuotas) -> Self:
        T, n = quotas.nominal.shape
        team = np.where(quotas.team < 0, T, quotas.team)
        classes, jobs = np.unique(np.column_stack([team, _smallest(problem)]), axis=0, return_counts=True)
        of_class, kind = np.nonzero(classes[:, 1:])
        limit = np.vstack([np.maximum(quotas.most - quotas.used, 0), np.full(n, problem.capacity.max(initial=0))])
        return cls(
            gpus=classes[:, 1:][of_class, kind].astype(float),
            place=classes[of_class, 0] * n + kind,
            of_class=of_class,
            jobs=jobs.astype(float),
            capacity=problem.capacity.astype(float),
            limit=np.minimum(limit, problem.capacity).astype(float),
            withheld=np.vstack([np.maximum(quotas.withheld - quotas.used, 0), zeros(n)]),
        )

    def solved(self, limit: Floats, time_limit_s: float | None) -> tuple[float, Floats]:
        """V at these limits (T + 1, n), and their duals."""
        (rows, n), V, C = limit.shape, len(self.gpus), len(self.jobs)
        used = (self.place == np.arange(rows * n)[:, None]) * self.gpus
        by_type = np.tile(eye(n), rows)
        lent = np.maximum(self.capacity - self.withheld.sum(axis=0), 0)
        found = maximize(
            np.append(ones(V), zeros(rows * n)),
            np.block(
                [
                    [(self.of_class == np.arange(C)[:, None]).astype(float), zeros((C, rows * n))],  # time
                    [by_type @ used, zeros((n, rows * n))],  # capacity
                    [used, zeros((rows * n, rows * n))],  # limit
                    [used, -eye(rows * n)],  # withheld
                    [zeros((n, V)), by_type],  # lent
                ]
            ),
            np.concatenate([self.jobs, self.capacity, limit.ravel(), self.withheld.ravel(), lent]),
            time_limit_s=time_limit_s,
        )
        return found.value, found.duals[C + n :][: rows * n].reshape(rows, n)


def _smallest(problem: Problem) -> Ints:
    """GPUs (m, n) of each job's smallest configuration on each type alone; 0: it cannot run there."""
    lone = (problem.usage > 0).sum(axis=0) == 1
    on_type = [
        np.where((problem.rate > 0) & lone & (of_type > 0), of_type, NONE).min(axis=1, initial=NONE)
        for of_type in problem.usage
    ]
    smallest = np.reshape(on_type, (len(problem.usage), len(problem.rate))).T
    return np.where(smallest < NONE, smallest, 0)
