r"""Levels where two jobs may share GPUs: linear programs over classes of alike jobs, with the pairs that pay.

C classes of N_c alike jobs; X_ck is the time that the jobs of class c spend alone in configuration k, all together, and
Y_cdk that which pairs of one job of c and one of d spend there, on the same GPUs, where each does T_ck times what it
keeps of its rate beside the other:

.. math::
    \max_{X,\,Y,\,t}\ t \quad\text{s.t.}\quad
    & \textstyle \sum_k T_{ck} (X_{ck} + \sum_d h_{cdk} Y_{cdk}) \ge t N_c r_c(z)  && \forall c \quad\text{(rate)} \\
    & \textstyle \sum_k X_{ck} + \sum_{dk} Y_{cdk} \le N_c  && \forall c \quad\text{(time)} \\
    & \textstyle \sum_k u_{jk} (\sum_c X_{ck} + \sum_{\{c,d\}} Y_{cdk}) \le c_j  && \forall j \quad\text{(capacity)}

A pair of two jobs of one class takes the time of both. Alike jobs can be treated alike, and any Y can be shared out to
single pairs (`Pairs.of_classes`) but that of a class of one job with itself, so this loses nothing. Level z is reached
if t = 1. With duals l, s, y of the three rows no level z' is in reach for which

.. math::
    \textstyle\sum_c l_c N_c\, r_c(z') > \sum_c s_c N_c + \sum_j y_j c_j

and that gives the next z. Classes with l_c > 0 can rise no further at that level; the others go on,
up to the tenth level.

There are many pairs and few are used. Two jobs that keep no more than a whole rate between them
do as well by turns. The others enter the program when its duals say that they would gain something there.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from time import perf_counter
from typing import NamedTuple, Self

import numpy as np
from scipy.optimize import brentq
from scipy.sparse import csr_array

from allocation.arrays import Bools, Floats, Ints
from allocation.classes import Kinds, alike
from allocation.decision import Decision
from allocation.pairs import Pairs
from allocation.problem import Problem
from allocation.solve import SolverFailed, maximize

PACKED = "Two jobs may share GPUs where they get more done so than by turns."

GAP = 1e-8
"""Of a level, relative to it."""
EXACT = 1e-9
"""By how much the solver may break a row."""
HAIR = 1e-8
"""By so much, relatively, those who are stopped may fall back at each level, lest rounding leave no room at all."""
SLIGHTLY = 1e-6
NOTHING = 1e-9
"""What a program says that somebody's rate costs, where it costs nothing."""
DUST = 1e-7
"""Of a job's time together with another: a solver's rounding."""
LIKELY = 4
"""Columns for each class that are kept from one level to the next: programs grow slow by all that were ever tried."""
MOST_LEVELS = 10
"""Where many jobs all differ there may be as many levels as jobs, nearly all of them of one job far above the rest."""
MOST_SOLVES = 100
"""For one level."""

Need = Callable[[float], Floats | float]
"""Level → the rate (C,) that a job of each class needs to be there; never falls as it rises, and 0 at level 0."""


@dataclass(frozen=True, eq=False)
class Packed:
    """Shares (m, K) alone and pairs; the lowest level that all reach, its bound, and its gain (n,) per GPU."""

    shares: Floats
    pairs: Pairs
    level: float
    bound: float
    prices: Floats
    seconds: float

    @property
    def decision(self) -> Decision:
        """As of a policy whose objective is the level."""
        return Decision.of_shares(
            self.shares,
            prices=self.prices,
            objective=self.level,
            bound=self.bound,
            solve_seconds=self.seconds,
            pairs=self.pairs,
        )

    @property
    def inverse_decision(self) -> Decision:
        """As of a policy whose objective is 1 over the level."""
        return replace(
            self.decision,
            prices=self.prices / self.level**2,
            objective=1 / self.level,
            bound=1 / self.bound,
        )


def pack_evenly(problem: Problem, scale: Floats) -> Packed:
    """Raise the level where it is the rate times a number of each job's own, scale (m,)."""
    kinds = alike(np.column_stack([problem.rate, scale, problem.workload]))
    per_level = 1 / scale[kinds.first]
    ceiling = problem.rate[kinds.first].max(axis=1) / per_level
    return pack_levels(problem, kinds, lambda z: z * per_level, ceiling=ceiling)


def pack_levels(problem: Problem, kinds: Kinds, need: Need, *, ceiling: Floats) -> Packed:
    """Raise everybody's level as far as it goes, the lowest first (lexicographic max-min, for the ten lowest levels).

    Who would rise beyond the tenth has that at least, and whatever more the last program happens to give.

    Parameters
    ----------
    kinds : classes of rows that are alike in rate, workload, and whatever else their need depends on.
    need : level → (C,) rates; what a job cannot reach even alone is not asked of it.
    ceiling : (C,) the level at which a job needs all that it can do.

    Raises
    ------
    SolverFailed
        The solver stopped early, or pairs went on to enter.
    """
    began = perf_counter()
    crowd = Crowd.of(problem, kinds)
    tops = _tops(crowd, need, ceiling)
    first, spent = tops[0], tops[-1].answer.spent
    bound = min(first.level, float(ceiling.min()))
    prices = [top.prices() for top in tops]
    return Packed(
        shares=spent.alone[kinds.of_row] / kinds.count[kinds.of_row, None],
        pairs=Pairs.of_classes(*spent.together, kinds),
        level=bound * min(1.0, float((spent.rates / first.needed).min())),
        bound=bound,
        prices=next((gain for gain in prices if gain.any()), prices[0]),
        seconds=perf_counter() - began,
    )


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
class _Columns:
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
class _Spent:
    """How the classes spend their time: that of each column (V,), of all its jobs."""

    columns: _Columns
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


class _Answer(NamedTuple):
    """The part of the need that can be had, how, and what one more is worth: of rate (C,), time (C,), a type (n,)."""

    part: float
    spent: _Spent
    of_rate: Floats
    of_time: Floats
    of_type: Floats

    @property
    def likely(self) -> _Columns:
        """The columns that are used, and those that nearly are."""
        columns = self.spent.columns
        c, v, rate = columns.entries
        gain = np.bincount(v, self.of_rate[c] * rate - self.of_time[c]) - self.of_type @ columns.crowd.use[:, columns.k]
        last = max(0, len(gain) - LIKELY * len(columns.crowd.count))
        bar = np.partition(gain, last)[last]
        return _Columns(columns.crowd, columns.keys[(gain >= bar) | (self.spent.time > 0)])


def _most(columns: _Columns, needed: Floats, rising: Bools) -> _Answer:
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
    spent = _Spent(columns, found.x[:-1] * per_job).fitting()
    return _Answer(found.value, spent, of_rate / (N * needed), of_time / N, of_type)


def _missing(answer: _Answer) -> tuple[float, Ints]:
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


@dataclass(frozen=True, eq=False)
class _Top:
    """The highest level of those who rise: what all need there (C,), and how it is had."""

    level: float
    rising: Bools
    need: Need
    answer: _Answer

    @cached_property
    def needed(self) -> Floats:
        return np.asarray(self.need(self.level))

    @cached_property
    def stopped(self) -> Bools:
        """Who of the classes (C,) can rise no further: more of his rate would cost others, or he is at his highest."""
        crowd = self.answer.spent.columns.crowd
        cost = self.answer.of_rate * crowd.count * self.needed
        stopped = self.rising & ((cost > NOTHING) | (self.needed >= crowd.most * (1 - HAIR)))
        return stopped if stopped.any() else self.rising

    def prices(self) -> Floats:
        """By how much the level would rise for one more GPU of each type (n,)."""
        crowd = self.answer.spent.columns.crowd
        below = self.level * (1 - SLIGHTLY)
        growth = float((self.answer.of_rate * crowd.count) @ (self.needed - self.need(below)))
        gain = (self.level - below) / growth if growth > 0 else 0.0
        return self.answer.of_type / np.maximum(crowd.capacity, 1) * gain


def _tops(crowd: Crowd, need: Need, ceiling: Floats) -> list[_Top]:
    """One level after the other, each of those whom the one before did not stop."""
    tops, rising, stays = list[_Top](), np.ones(len(ceiling), dtype=np.bool_), np.zeros(len(ceiling))
    level, columns = float(np.median(ceiling)), _Columns.alone(crowd)
    while rising.any() and len(tops) < MOST_LEVELS:
        needed = _within(crowd.most, need, rising, stays)
        top = _highest(columns, needed, rising, level, float(ceiling[rising].max()))
        rising = rising & ~top.stopped
        stays = np.where(rising, 0, np.minimum(top.needed, top.answer.spent.rates) * (1 - HAIR))
        level, columns = top.level, top.answer.likely
        tops.append(top)
    return tops


def _within(most: Floats, need: Need, rising: Bools, stays: Floats) -> Need:
    """What is asked of a class: no more than it can, and what it has once it is stopped."""
    return lambda z: np.where(rising, np.minimum(need(z), most), stays)


def _highest(columns: _Columns, need: Need, rising: Bools, level: float, ceiling: float) -> _Top:
    """The highest level of those who rise, up to the ceiling, from any level to begin with."""
    for _ in range(MOST_SOLVES):
        needed = np.asarray(need(level))
        answer = _most(columns, needed, rising)
        gap, keys = _missing(answer)
        more = columns.with_more(keys)
        complete = gap <= GAP * answer.part or len(more.keys) == len(columns.keys)
        if complete and (abs(answer.part - 1) <= GAP or (answer.part >= 1 and level == ceiling)):
            return _Top(level, rising, need, answer)
        level = _next_level(answer, need, rising, ceiling)
        if complete and _is_had(answer, needed, np.asarray(need(level)), rising):
            return _Top(level, rising, need, answer)
        columns = columns if complete else more
    raise SolverFailed(f"packing: pairs went on to enter after {MOST_SOLVES} programs")


def _is_had(answer: _Answer, needed: Floats, wanted: Floats, rising: Bools) -> bool:
    """Whether what is wanted at another level is that part of the need that can be had."""
    return bool(np.allclose(answer.part * needed[rising], wanted[rising], rtol=GAP, atol=0))


def _next_level(answer: _Answer, need: Need, rising: Bools, ceiling: float) -> float:
    """The level beyond which the duals prove, for these columns, that nobody gets."""
    per_rate = np.where(rising, answer.of_rate * answer.spent.columns.crowd.count, 0)

    def spare(z: float) -> float:
        return float(per_rate @ need(z)) - answer.part

    return ceiling if spare(ceiling) <= 0 else float(brentq(spare, 0, ceiling, xtol=1e-300, rtol=1e-14, maxiter=300))
