r"""The greatest part of their need that jobs can have together where two may share GPUs, and the pairs that pay.

C classes of N_c alike jobs; X_ck is the time that the jobs of class c spend alone in configuration k, all together, and
Y_cdk that which pairs of one job of c and one of d spend there, on the same GPUs, where each does T_ck times what it
keeps of its rate beside the other:

.. math::
    \max_{X,\,Y,\,t}\ t \quad\text{s.t.}\quad
    & \textstyle \sum_k T_{ck} (X_{ck} + \sum_d h_{cdk} Y_{cdk}) \ge t N_c r_c(z)  && \forall c \quad\text{(rate)} \\
    & \textstyle \sum_k X_{ck} + \sum_{dk} Y_{cdk} \le N_c  && \forall c \quad\text{(time)} \\
    & \textstyle \sum_k u_{jk} (\sum_c X_{ck} + \sum_{\{c,d\}} Y_{cdk}) \le c_j  && \forall j \quad\text{(capacity)}

A pair of two jobs of one class takes the time of both. Alike jobs can be treated alike, and any Y can be shared out to
single pairs (`Pairs.of_classes`) but that of a class of one job with itself, so this loses nothing.

There are many pairs and few are used. Two jobs that keep no more than a whole rate between them do as well by turns.
The others enter the program when its duals say that they would gain something there.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np
from scipy.sparse import csr_array

from allocation.arrays import Bools, Floats, Ints
from allocation.classes import Kinds
from allocation.problem import Problem
from allocation.solve import maximize

EXACT = 1e-9
"""By how much the solver may break a row."""
DUST = 1e-7
"""Of a job's time together with another: a solver's rounding."""
LIKELY = 4
"""Columns for each class that are kept from one level to the next: programs grow slow by all that were ever tried."""


@dataclass(frozen=True, eq=False)
class Crowd:
    """What C classes, of count (C,) jobs, can do: rate (C, K), and what is kept of it by workload, (S, S, K)."""

    rate: Floats
    workload: Ints
    kept: Floats
    usage: Ints
    capacity: Ints
    count: Ints

    @classmethod
    def of(cls, problem: Problem, kinds: Kinds) -> Self:
        """Give the classes of a round."""
        rate, workload, kept = problem.rate[kinds.first], problem.workload[kinds.first], problem.kept_rate
        kept = kept if kept.size else np.zeros((1, 1, rate.shape[1]))
        return cls(rate, workload, kept, problem.usage, problem.capacity, kinds.count)

    @cached_property
    def most(self) -> Floats:
        """The highest rate (C,) of a job: nobody is faster beside another than alone."""
        most: Floats = self.rate.max(axis=1)
        return most

    @cached_property
    def use(self) -> Floats:
        """The part of each type (n, K) that a configuration takes."""
        return self.usage / np.maximum(self.capacity, 1)[:, None]

    @cached_property
    def members(self) -> list[Ints]:
        """The classes of each workload (S)."""
        return [np.flatnonzero(self.workload == a) for a in range(len(self.kept))]

    @cached_property
    def beside(self) -> Floats:
        """The rate (C, S, K) of each class beside jobs of each workload; 0 where they had better take turns."""
        pays = (self.kept > 0) & (self.kept + self.kept.transpose(1, 0, 2) > 1)
        kept = np.where(pays, self.kept, 0)[self.workload] * (self.workload >= 0)[:, None, None]
        rate: Floats = self.rate[:, None] * kept
        return rate


@dataclass(frozen=True, eq=False)
class Columns:
    """V ways to spend time: each a class alone or with another, in one configuration, as one number."""

    crowd: Crowd
    keys: Ints

    @classmethod
    def alone(cls, crowd: Crowd) -> Self:
        c, k = (crowd.rate > 0).nonzero()
        return cls(crowd, _keys(crowd, c, np.full_like(c, len(crowd.rate)), k))

    def with_more(self, keys: Ints) -> Self:
        return type(self)(self.crowd, np.union1d(self.keys, keys))

    @cached_property
    def k(self) -> Ints:
        k: Ints = self.keys % self.crowd.rate.shape[1]
        return k

    @cached_property
    def sides(self) -> tuple[Ints, Ints]:
        """The class (V,), and the other; C: none."""
        first, second = np.divmod(self.keys // self.crowd.rate.shape[1], len(self.crowd.rate) + 1)
        return first, second

    @cached_property
    def paired(self) -> Ints:
        """Those of two."""
        paired: Ints = np.flatnonzero(self.sides[1] < len(self.crowd.rate))
        return paired

    @cached_property
    def entries(self) -> tuple[Ints, Ints, Floats]:
        """For each column and each of its classes: the class, the column, and the rate of that class there."""
        crowd, v, k = self.crowd, np.arange(len(self.keys)), self.k
        (first, second), two = self.sides, self.paired
        rate = crowd.rate[first, k]
        rate[two] = crowd.beside[first[two], crowd.workload[second[two]], k[two]]
        other = crowd.beside[second[two], crowd.workload[first[two]], k[two]]
        return np.append(first, second[two]), np.append(v, two), np.append(rate, other)


def _keys(crowd: Crowd, ones: Ints, others: Ints, k: Ints) -> Ints:
    C, K = crowd.rate.shape
    keys: Ints = (np.minimum(ones, others) * (C + 1) + np.maximum(ones, others)) * K + k
    return keys


@dataclass(frozen=True, eq=False)
class Spent:
    """How the classes spend their time: that of each column (V,), of all its jobs."""

    columns: Columns
    time: Floats

    @cached_property
    def rates(self) -> Floats:
        """What a job of each class (C,) does."""
        c, v, rate = self.columns.entries
        crowd = self.columns.crowd
        rates: Floats = np.bincount(c, rate * self.time[v], len(crowd.count)) / crowd.count
        return rates

    @property
    def alone(self) -> Floats:
        """The time (C, K) of each class alone."""
        crowd, (first, second), k = self.columns.crowd, self.columns.sides, self.columns.k
        time, lone = np.zeros_like(crowd.rate), second == len(crowd.rate)
        time[first[lone], k[lone]] = self.time[lone]
        return time

    @property
    def together(self) -> tuple[Ints, Floats]:
        """The pairs of classes (Q, 2) that spend time together, and how much (Q, K)."""
        two = self.columns.paired
        two = two[self.time[two] > DUST * self.columns.crowd.count[self.columns.sides[0][two]]]
        sides = np.column_stack(self.columns.sides)[two]
        classes, q = np.unique(sides, axis=0, return_inverse=True)
        time = np.zeros((len(classes), self.columns.crowd.rate.shape[1]))
        time[q.ravel(), self.columns.k[two]] = self.time[two]
        return classes, time

    def fitting(self) -> Self:
        """Give the same within everybody's time and all GPUs, which a solver may overrun by a little."""
        crowd, (c, v, _) = self.columns.crowd, self.columns.entries
        time = np.bincount(c, self.time[v], len(crowd.count)) / crowd.count
        over = max(1.0, float(time.max()), float((crowd.use[:, self.columns.k] @ self.time).max()))
        return type(self)(self.columns, self.time / over)


class Answer(NamedTuple):
    """The part of the need that can be had, how, and what one more is worth: of rate (C,), time (C,), a type (n,)."""

    part: float
    spent: Spent
    of_rate: Floats
    of_time: Floats
    of_type: Floats

    @property
    def likely(self) -> Columns:
        """The columns that are used, and those that nearly are."""
        columns = self.spent.columns
        c, v, rate = columns.entries
        gain = np.bincount(v, self.of_rate[c] * rate - self.of_time[c]) - self.of_type @ columns.crowd.use[:, columns.k]
        last = max(0, len(gain) - LIKELY * len(columns.crowd.count))
        bar = np.partition(gain, last)[last]
        return Columns(columns.crowd, columns.keys[(gain >= bar) | (self.spent.time > 0)])


def greatest_part(columns: Columns, needed: Floats, rising: Bools) -> Answer:
    """The greatest part of their need that all who rise can have at once; the others have theirs."""
    crowd, V = columns.crowd, len(columns.keys)
    (c, v, rate), C, N = columns.entries, len(crowd.count), crowd.count
    per_job = N[columns.sides[0]]  # the unit of a column: the time of the first class's jobs
    j, w = (crowd.usage[:, columns.k] > 0).nonzero()
    risers = np.flatnonzero(rising)
    of_job = per_job[v] / N[c]
    data = [-rate * of_job / needed[c], np.ones(risers.size), of_job, crowd.use[j, columns.k[w]] * per_job[w]]
    rows, at = [c, risers, C + c, 2 * C + j], [v, np.full(risers.size, V), v, w]
    program = csr_array(
        (np.concatenate(data), (np.concatenate(rows), np.concatenate(at))), shape=(2 * C + len(crowd.use), V + 1)
    )
    limits = np.concatenate([np.where(rising, 0, -1), np.ones(C), crowd.capacity > 0])
    found = maximize(np.append(np.zeros(V), 1), program, limits, tolerance=EXACT)
    of_rate, of_time, of_type = np.split(found.duals, [C, 2 * C])
    spent = Spent(columns, found.x[:-1] * per_job).fitting()
    return Answer(found.value, spent, of_rate / (N * needed), of_time / N, of_type)


def missing_columns(answer: Answer) -> tuple[float, Ints]:
    """By how much less, at most, is had for want of columns; and the best of these by class and configuration."""
    crowd, price = answer.spent.columns.crowd, answer.of_type @ answer.spent.columns.crowd.use
    lone = np.where(crowd.rate > 0, crowd.rate * answer.of_rate[:, None] - answer.of_time[:, None] - price, -np.inf)
    gain = crowd.beside * answer.of_rate[:, None, None] - answer.of_time[:, None, None]
    gain[crowd.beside <= 0] = -np.inf
    best, mate = _best_mates(crowd, gain)
    value = gain + best - price
    of = value.argmax(axis=1)[:, None]
    top, other = np.take_along_axis(value, of, axis=1)[:, 0], np.take_along_axis(mate, of, axis=1)[:, 0]
    (c, k), (alone, there) = (top > 0).nonzero(), (lone > 0).nonzero()
    keys = _keys(crowd, c, other[c, k], k), _keys(crowd, alone, np.full_like(alone, len(lone)), there)
    most = np.maximum(top / 2, lone).max(axis=1)  # of a pair each bears half
    return float(crowd.count @ np.maximum(most, 0)), np.concatenate(keys)


def _best_mates(crowd: Crowd, gain: Floats) -> tuple[Floats, Ints]:
    """What the best mate of each workload gains (C, S, K) beside each class, and which class that is."""
    _, S, K = gain.shape
    best, mate = np.full((S, S, K), -np.inf), np.zeros((S, S, K), dtype=np.int64)
    for a, classes in enumerate(crowd.members):
        if classes.size:
            mate[a] = classes[gain[classes].argmax(axis=0)]
            best[a] = np.take_along_axis(gain, mate[a][None], axis=0)[0]
    best, mate = best.transpose(1, 0, 2)[crowd.workload], mate.transpose(1, 0, 2)[crowd.workload]
    for c in np.flatnonzero((crowd.count == 1) & (crowd.workload >= 0)).tolist():
        _find_another(crowd, gain, c, best[c], mate[c])
    return best, mate


def _find_another(crowd: Crowd, gain: Floats, c: int, best: Floats, mate: Ints) -> None:
    """In place of itself, give a class of one job the next best mate of its workload (S, K)."""
    a = int(crowd.workload[c])
    others = crowd.members[a][crowd.members[a] != c]
    for k in np.flatnonzero(mate[a] == c).tolist():
        mate[a, k] = others[gain[others, a, k].argmax()] if others.size else c
        best[a, k] = gain[mate[a, k], a, k] if others.size else -np.inf
