"""Quotas of teams on GPU types, with borrowing and lending among all teams."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import inf
from typing import NamedTuple, Self

import numpy as np

from allocation.problem import Problem
from allocation.types import Bools, Ints

NO_LIMIT = 2**40
"""GPUs that no team reaches: it may borrow what others leave."""
Needs = list[tuple[int, int]]
"""Types of a configuration, and how many GPUs of each it uses."""


class QuotaLimits(NamedTuple):
    """Quota of a team (a row) on a GPU type (a row); None: no limit."""

    team: int
    gpu_type: int
    gpus: int
    borrowing_limit: int | None = None
    lending_limit: int | None = None

    @property
    def withheld(self) -> int:
        """GPUs of the quota that are never lent."""
        return 0 if self.lending_limit is None else max(self.gpus - self.lending_limit, 0)


@dataclass(frozen=True, eq=False)
class TypeQuotas:
    r"""Quotas of T teams on n GPU types: what is guaranteed to a team, and how many GPUs it may use at most.

    .. math::
        \max(g_{tj}, r_{tj}) \ \text{are kept for team}\ t, \qquad x_{tj} \le m_{tj}, \qquad
        \textstyle \sum_t \max(x_{tj} - g_{tj},\ 0) \le c_j - \sum_t g_{tj}

    x are GPUs in use, c those in service. Above its guarantee a team borrows from the pool on the right, as do teams
    without a quota. The terms are Kueue's: nominal quota, borrowing limit, lending limit.

    Parameters
    ----------
    team : (m,) the team of each job, -1: it has no quota on any type.
    nominal : (T, n) GPUs, 0 where a team has no quota on a type.
    most : m (T, n), the nominal quota and the borrowing limit; `NO_LIMIT` where there is none.
    withheld : r (T, n), the part of the nominal quota that is never lent.
    used : (T, n) GPUs of attempts that are not rows; they are not part of the capacity.
    guaranteed : g (T, n), the part of the nominal quota that is kept for the team in this round.
    """

    team: Ints
    nominal: Ints
    most: Ints
    withheld: Ints
    used: Ints
    guaranteed: Ints

    def __post_init__(self) -> None:
        shapes = {column.shape for column in (self.nominal, self.most, self.withheld, self.used, self.guaranteed)}
        if len(shapes) != 1 or self.nominal.ndim != 2 or self.team.ndim != 1:
            raise ValueError("type quotas: team must be (m,), and nominal, most, withheld, used and guaranteed (T, n)")
        if self.team.size and not -1 <= self.team.min() <= self.team.max() < len(self.nominal):
            raise ValueError("type quotas: a job belongs to a team that does not exist")

    @classmethod
    def of(cls, team: Ints, nominal: Ints, most: Ints, withheld: Ints, used: Ints) -> Self:
        """Quotas of which the whole nominal part is guaranteed."""
        return cls(team, nominal, most, withheld, used, nominal)

    @classmethod
    def of_limits(cls, team: Ints, limits: Iterable["QuotaLimits"], used: Ints) -> Self:
        """Quotas of which the whole nominal part is guaranteed, from those of each team and type."""
        nominal, withheld, most = np.zeros_like(used), np.zeros_like(used), np.full_like(used, NO_LIMIT)
        for one in limits:
            place = one.team, one.gpu_type
            nominal[place], withheld[place] = one.gpus, one.withheld
            most[place] = NO_LIMIT if one.borrowing_limit is None else one.gpus + one.borrowing_limit
        return cls.of(team, nominal, most, withheld, used)

    def never_allowed(self, usage: Ints, capacity: Ints) -> Bools:
        """Configurations (m, K) that exceed a quota of the job even on an idle cluster; usage (n, K)."""
        alone = RemainingTypeQuotas(replace(self, guaranteed=self.withheld, used=np.zeros_like(self.used)), capacity)
        return alone.beyond_limits(usage) | alone.beyond_quotas(usage)

    def of_rows(self, rows: Ints) -> Self:
        """The same quotas for some of the jobs."""
        return replace(self, team=self.team[rows])

    def demanded(self, problem: Problem, among: Ints | None = None) -> Self:
        """Guarantee to each team no more than its jobs, or those among these rows, could use."""
        rows = np.arange(len(self.team)) if among is None else among
        largest = np.zeros((len(self.team), len(problem.usage)), dtype=np.int64)
        for j, of_type in enumerate(problem.usage):
            largest[rows, j] = np.where(problem.rate[rows] > 0, of_type, 0).max(axis=1, initial=0)
        return self._guaranteeing(self._of_teams(largest))

    def lent(self, problem: Problem, assignment: Ints) -> Self:
        """Guarantee to each team no more than it uses under an assignment (m,): what is left is lent."""
        return self._guaranteeing(self.in_use(problem, assignment))

    def in_use(self, problem: Problem, assignment: Ints) -> Ints:
        """GPUs (T, n) that each team uses under an assignment (m,)."""
        return self._of_teams(np.where(assignment >= 0, problem.usage[:, assignment], 0).T)

    def _of_teams(self, gpus: Ints) -> Ints:
        """Sums (T, n) over the jobs of each team of their GPUs (m, n), and those of other attempts."""
        sums, some = self.used.copy(), self.team >= 0
        np.add.at(sums, self.team[some], gpus[some])
        return sums

    def _guaranteeing(self, gpus: Ints) -> Self:
        return replace(self, guaranteed=np.maximum(np.minimum(self.nominal, gpus), self.withheld))


class RemainingTypeQuotas:
    """GPUs of each type that teams may still take, own and borrowed ones; in plain lists, as `RemainingCapacity`."""

    def __init__(self, quotas: TypeQuotas, capacity: Ints) -> None:
        n, own = len(capacity), quotas.guaranteed - quotas.used
        self._team = quotas.team.tolist()
        self._own: list[list[int]] = [*own.tolist(), [0] * n]
        """What is left of each team's guarantee; the last: teams without quotas."""
        self._left: list[list[float]] = [*(quotas.most - quotas.used).tolist(), [inf] * n]
        self._pool: list[int] = (capacity - np.maximum(own, 0).sum(axis=0)).tolist()
        """GPUs that may still be borrowed; negative where jobs that are not stopped use what is guaranteed to others"""

    def allows(self, i: int, needs: Needs, *, keeps: bool = False) -> bool:
        """Whether job i may take these GPUs; one that keeps them holds them within its lease, if borrowed too."""
        own, left = self._own[self._team[i]], self._left[self._team[i]]
        return all(left[j] >= u and (keeps or self._pool[j] >= u - max(own[j], 0) or own[j] >= u) for j, u in needs)

    def take(self, i: int, needs: Needs) -> None:
        own, left = self._own[self._team[i]], self._left[self._team[i]]
        for j, u in needs:
            self._pool[j] -= u - min(max(own[j], 0), u)
            own[j] -= u
            left[j] -= u

    def give_back(self, i: int, needs: Needs) -> None:
        own, left = self._own[self._team[i]], self._left[self._team[i]]
        for j, u in needs:
            own[j] += u
            left[j] += u
            self._pool[j] += u - min(max(own[j], 0), u)

    def take_all(self, usage: Ints, assignment: Ints) -> Self:
        """Take what rows use under an assignment (m,)."""
        for i in np.flatnonzero(assignment >= 0).tolist():
            of_type = usage[:, assignment[i]]
            self.take(i, [(j, int(of_type[j])) for j in np.flatnonzero(of_type).tolist()])
        return self

    def beyond_limits(self, usage: Ints) -> Bools:
        """Configurations (m, K) of this usage (n, K) with which the team of each job would exceed its limit."""
        return self._of_rows((usage > np.array(self._left)[:, :, None]) & (usage > 0))

    def beyond_quotas(self, usage: Ints) -> Bools:
        """Configurations (m, K) of this usage (n, K) for which more would be borrowed than there is to borrow."""
        borrowed = np.maximum(usage - np.maximum(self._own, 0)[:, :, None], 0)
        return self._of_rows((borrowed > np.array(self._pool)[:, None]) & (borrowed > 0))

    def _of_rows(self, beyond: Bools) -> Bools:
        """By job (m, K), what holds by team, type and configuration (T + 1, n, K) for any of the types."""
        of_teams: Bools = np.asarray(beyond.any(axis=1))
        return of_teams[np.array(self._team, dtype=np.int64)]
