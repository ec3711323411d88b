r"""Column generation for one level where two jobs may share GPUs: restricted master problem and pricing of pairs.

The master problem maximises the common part t of the required rates r_c(z) of the classes that are not fixed. There are
C classes of N_c identical jobs; X_ck is the total time that the jobs of class c spend alone in configuration k,
and Y_cdk that which pairs of one job of c and one of d spend there, on the same GPUs, where each does T_ck times the
part h that it keeps of its rate beside the other:

.. math::
    \max_{X,\,Y,\,t}\ t \quad\text{s.t.}\quad
    & \textstyle \sum_k T_{ck} (X_{ck} + \sum_d h_{cdk} Y_{cdk}) \ge t N_c r_c(z)  && \forall c \quad\text{(rate)} \\
    & \textstyle \sum_k X_{ck} + \sum_{dk} Y_{cdk} \le N_c  && \forall c \quad\text{(time)} \\
    & \textstyle \sum_k u_{jk} (\sum_c X_{ck} + \sum_{\{c,d\}} Y_{cdk}) \le c_j  && \forall j \quad\text{(capacity)}

A pair of two jobs of one class takes the time of both. Identical jobs can be treated alike, and any Y can be
distributed to single pairs (`pairs_of_classes`) but that of a class of one job with itself: classes lose nothing.

There are many pairs and few are used. Two jobs that keep no more than one whole rate between them do as well by turns.
The others enter the restricted master problem when their reduced cost is positive.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np
import scipy

from allocation.decision import Pairs
from allocation.problem import Problem, sharing_of
from allocation.solvers.linear_program import maximize
from allocation.solvers.presolve import JobClasses
from allocation.types import Bools, Floats, Ints

EXACT = 1e-9
"""Tolerance of the solver on a row."""
DUST = 1e-7
"""Part of a job's time below which time with another job is a solver's rounding error."""
LIKELY = 4
"""Columns per class that are kept from one level to the next: with all columns ever tried programs grow slow."""


@dataclass(frozen=True, eq=False)
class JobClassData:
    """Data of C classes of count (C,) jobs: rate (C, K), and the part of it kept beside another workload, (S, S, K)."""

    rate: Floats
    workload: Ints
    kept: Floats
    usage: Ints
    capacity: Ints
    count: Ints

    @classmethod
    def of(cls, problem: Problem, classes: JobClasses) -> Self:
        """Data of the classes of a round."""
        rate, sharing = problem.rate[classes.first], sharing_of(problem)
        kept = sharing.kept_rate if sharing.kept_rate.size else np.zeros((1, 1, rate.shape[1]))
        return cls(rate, sharing.workload[classes.first], kept, problem.usage, problem.capacity, classes.count)

    @cached_property
    def most(self) -> Floats:
        """Highest rate (C,) of a job: no job is faster beside another than alone."""
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
    """V columns of the restricted master, as keys: a class alone or with another one, in one configuration."""

    data: JobClassData
    keys: Ints

    @classmethod
    def alone(cls, data: JobClassData) -> Self:
        c, k = (data.rate > 0).nonzero()
        return cls(data, _keys(data, c, np.full_like(c, len(data.rate)), k))

    def with_more(self, keys: Ints) -> Self:
        return type(self)(self.data, np.union1d(self.keys, keys))

    @cached_property
    def k(self) -> Ints:
        k: Ints = self.keys % self.data.rate.shape[1]
        return k

    @cached_property
    def sides(self) -> tuple[Ints, Ints]:
        """The class (V,), and the other; C: none."""
        first, second = np.divmod(self.keys // self.data.rate.shape[1], len(self.data.rate) + 1)
        return first, second

    @cached_property
    def paired(self) -> Ints:
        """Indices of the columns of two classes."""
        paired: Ints = np.flatnonzero(self.sides[1] < len(self.data.rate))
        return paired

    @cached_property
    def entries(self) -> tuple[Ints, Ints, Floats]:
        """For each column and each of its classes: the class, the column, and the rate of that class there."""
        data, v, k = self.data, np.arange(len(self.keys)), self.k
        (first, second), two = self.sides, self.paired
        rate = data.rate[first, k]
        rate[two] = data.beside[first[two], data.workload[second[two]], k[two]]
        other = data.beside[second[two], data.workload[first[two]], k[two]]
        return np.append(first, second[two]), np.append(v, two), np.append(rate, other)


def _keys(data: JobClassData, ones: Ints, others: Ints, k: Ints) -> Ints:
    C, K = data.rate.shape
    keys: Ints = (np.minimum(ones, others) * (C + 1) + np.maximum(ones, others)) * K + k
    return keys


@dataclass(frozen=True, eq=False)
class TimeAllocation:
    """Time of the classes by column (V,), summed over all jobs."""

    columns: Columns
    time: Floats

    @cached_property
    def rates(self) -> Floats:
        """Rate (C,) of a job of each class."""
        c, v, rate = self.columns.entries
        data = self.columns.data
        rates: Floats = np.bincount(c, rate * self.time[v], len(data.count)) / data.count
        return rates

    @property
    def alone(self) -> Floats:
        """The time (C, K) of each class alone."""
        data, (first, second), k = self.columns.data, self.columns.sides, self.columns.k
        time, lone = np.zeros_like(data.rate), second == len(data.rate)
        time[first[lone], k[lone]] = self.time[lone]
        return time

    @property
    def together(self) -> tuple[Ints, Floats]:
        """The pairs of classes (Q, 2) that spend time together, and how much (Q, K)."""
        two = self.columns.paired
        two = two[self.time[two] > DUST * self.columns.data.count[self.columns.sides[0][two]]]
        sides = np.column_stack(self.columns.sides)[two]
        classes, q = np.unique(sides, axis=0, return_inverse=True)
        time = np.zeros((len(classes), self.columns.data.rate.shape[1]))
        time[q.ravel(), self.columns.k[two]] = self.time[two]
        return classes, time

    def fitting(self) -> Self:
        """Scale to fit the time of all jobs and all GPUs, which a solver may exceed by its tolerance."""
        data, (c, v, _) = self.columns.data, self.columns.entries
        time = np.bincount(c, self.time[v], len(data.count)) / data.count
        over = max(1.0, float(time.max()), float((data.use[:, self.columns.k] @ self.time).max()))
        return type(self)(self.columns, self.time / over)


class MasterSolution(NamedTuple):
    """Solution of the restricted master: the common part t, time by column, and duals of rate, time and capacity."""

    part: float
    allocated: TimeAllocation
    of_rate: Floats
    of_time: Floats
    of_type: Floats

    @property
    def likely(self) -> Columns:
        """Columns in use, and those of the highest reduced cost."""
        columns = self.allocated.columns
        c, v, rate = columns.entries
        of_rate_and_time = np.bincount(v, self.of_rate[c] * rate - self.of_time[c])
        reduced_cost = of_rate_and_time - self.of_type @ columns.data.use[:, columns.k]
        last = max(0, len(reduced_cost) - LIKELY * len(columns.data.count))
        bar = np.partition(reduced_cost, last)[last]
        return Columns(columns.data, columns.keys[(reduced_cost >= bar) | (self.allocated.time > 0)])


def solve_restricted_master(columns: Columns, needed: Floats, rising: Bools) -> MasterSolution:
    """Restricted master: maximise the common part t of the required rates of the rising classes.

    The other classes have their required rates.
    """
    data, V = columns.data, len(columns.keys)
    (c, v, rate), C, N = columns.entries, len(data.count), data.count
    per_job = N[columns.sides[0]]  # the unit of a column: the time of the first class's jobs
    j, w = (data.usage[:, columns.k] > 0).nonzero()
    risers = np.flatnonzero(rising)
    of_job = per_job[v] / N[c]
    coefficients = [-rate * of_job / needed[c], np.ones(risers.size), of_job, data.use[j, columns.k[w]] * per_job[w]]
    rows, at = [c, risers, C + c, 2 * C + j], [v, np.full(risers.size, V), v, w]
    program = scipy.sparse.csr_array(
        (np.concatenate(coefficients), (np.concatenate(rows), np.concatenate(at))), shape=(2 * C + len(data.use), V + 1)
    )
    limits = np.concatenate([np.where(rising, 0, -1), np.ones(C), data.capacity > 0])
    found = maximize(np.append(np.zeros(V), 1), program, limits, tolerance=EXACT)
    of_rate, of_time, of_type = np.split(found.duals, [C, 2 * C])
    allocated = TimeAllocation(columns, found.x[:-1] * per_job).fitting()
    return MasterSolution(found.value, allocated, of_rate / (N * needed), of_time / N, of_type)


def price_columns(master: MasterSolution) -> tuple[float, Ints]:
    """Optimality gap of the restricted master, and the columns of the highest reduced cost by class, configuration."""
    data, price = master.allocated.columns.data, master.of_type @ master.allocated.columns.data.use
    lone = np.where(data.rate > 0, data.rate * master.of_rate[:, None] - master.of_time[:, None] - price, -np.inf)
    reduced_cost = data.beside * master.of_rate[:, None, None] - master.of_time[:, None, None]
    reduced_cost[data.beside <= 0] = -np.inf
    best, mate = _best_mates(data, reduced_cost)
    value = reduced_cost + best - price
    of = value.argmax(axis=1)[:, None]
    top, other = np.take_along_axis(value, of, axis=1)[:, 0], np.take_along_axis(mate, of, axis=1)[:, 0]
    (c, k), (alone, there) = (top > 0).nonzero(), (lone > 0).nonzero()
    keys = _keys(data, c, other[c, k], k), _keys(data, alone, np.full_like(alone, len(lone)), there)
    most = np.maximum(top / 2, lone).max(axis=1)  # of a pair each bears half
    return float(data.count @ np.maximum(most, 0)), np.concatenate(keys)


def _best_mates(data: JobClassData, reduced_cost: Floats) -> tuple[Floats, Ints]:
    """Highest reduced cost (C, S, K) of a mate of each workload beside each class, and the class of that mate."""
    _, S, K = reduced_cost.shape
    best, mate = np.full((S, S, K), -np.inf), np.zeros((S, S, K), dtype=np.int64)
    for a, classes in enumerate(data.members):
        if classes.size:
            mate[a] = classes[reduced_cost[classes].argmax(axis=0)]
            best[a] = np.take_along_axis(reduced_cost, mate[a][None], axis=0)[0]
    best, mate = best.transpose(1, 0, 2)[data.workload], mate.transpose(1, 0, 2)[data.workload]
    for c in np.flatnonzero((data.count == 1) & (data.workload >= 0)).tolist():
        _find_another(data, reduced_cost, c, best[c], mate[c])
    return best, mate


def _find_another(data: JobClassData, reduced_cost: Floats, c: int, best: Floats, mate: Ints) -> None:
    """Replace a class of one job as its own mate by the next best mate of its workload (S, K)."""
    a = int(data.workload[c])
    others = data.members[a][data.members[a] != c]
    for k in np.flatnonzero(mate[a] == c).tolist():
        mate[a, k] = others[reduced_cost[others, a, k].argmax()] if others.size else c
        best[a, k] = reduced_cost[mate[a, k], a, k] if others.size else -np.inf


def pairs_of_classes(classes: Ints, time: Floats, job_classes: JobClasses) -> Pairs:
    """Distribute the time (Q, K) that pairs of classes (Q, 2) spend together evenly over the jobs of each class.

    A class paired with itself has at least two jobs.
    """
    parts = [
        _within(members) if c == d else _between(members, others)
        for c, d, members, others in _members_of(classes, job_classes)
    ]
    if not parts:
        return Pairs.none(time.shape[1])
    rows = np.concatenate([rows for rows, _ in parts])
    shares = [np.multiply.outer(part, together) for (_, part), together in zip(parts, time, strict=True)]
    return Pairs(rows, np.concatenate(shares))


def _members_of(classes: Ints, job_classes: JobClasses) -> list[tuple[int, int, Ints, Ints]]:
    turn = np.argsort(job_classes.of_row, kind="stable")
    bounds = np.concatenate([[0], np.cumsum(job_classes.count)])
    members = [turn[bounds[c] : bounds[c + 1]] for c in range(len(job_classes.count))]
    return [(c, d, members[c], members[d]) for c, d in classes.tolist()]


def _between(ones: Ints, others: Ints) -> tuple[Ints, Floats]:
    """Pair the jobs of two classes in as few pairs as possible, with the part of the total time of each pair."""
    n, m = len(ones), len(others)
    cuts = np.union1d(np.arange(n + 1) * m, np.arange(m + 1) * n)
    rows = np.column_stack([ones[cuts[:-1] // m], others[cuts[:-1] // n]])
    return rows, np.diff(cuts) / (n * m)


def _within(ones: Ints) -> tuple[Ints, Floats]:
    """Pair the jobs of one class, each in one pair; of an odd number three form three pairs."""
    n = len(ones)
    odd = 3 if n % 2 else 0
    turns = np.array([[0, 1], [1, 2], [0, 2]])[:odd]
    two = np.arange(odd, n).reshape(-1, 2)
    parts = np.concatenate([np.full(len(turns), 1 / n), np.full(len(two), 2 / n)])
    return ones[np.concatenate([turns, two])], parts
