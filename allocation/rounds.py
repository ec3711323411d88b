"""The round mechanism: shares of time and time received become this round's picks (Gavel, sections 3.2 and 5)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from allocation.arrays import Bools, Floats, Ints
from allocation.decision import Decision
from allocation.limits import Limits
from allocation.problem import Problem
from allocation.room import Room

TIE = 6
"""Decimals; priorities and shares that are nearer differ by a solver's rounding, which is to decide nothing."""
RESET_ROUNDS = 16 / 3  # Gavel's 1920 s between allocations, in rounds of 360 s

TOGETHER = 1024
"""So many wants are looked at before those are left out that nobody can have any more."""
OUT = -2
"""In place of a pick: a job of this row runs in another."""
_Wants = tuple[Ints, Ints]
"""Rows, and a configuration for each."""


def reset_due(*, changed: bool, since_s: float | None, round_s: float) -> bool:
    """Whether shares are to be set anew: the jobs or nodes changed, and not too recently; None: never set."""
    return since_s is None or (changed and since_s >= RESET_ROUNDS * round_s)


def priorities(problem: Problem, shares: Floats, *, round_s: float) -> Floats:
    r"""Give how far each job is behind its share on each type (m, n).

    .. math::
        \pi_{ij} = X_{ij} / f_{ij}, \qquad
        f_{ij} = \frac{T/2 + t_{ij}}{\sum_i (T/2 + t_{ij})}

    T is the round's length, the half of it an initial credit; t = received_s (m, n); X_ij sums the shares of the
    configurations that use type j.
    """
    credited = problem.received_s + round_s / 2
    on_type = shares @ (problem.usage > 0).T.astype(float)
    priority: Floats = on_type / (credited / credited.sum(axis=0))
    return priority


def realise(
    problem: Problem,
    decision: Decision,
    limits: Limits,
    *,
    round_s: float,
    type_order: Sequence[int] | None = None,
    deficit: Floats | None = None,
    settled: Ints | None = None,
    barred: Bools | None = None,
    reserved: Bools | None = None,
    members: Ints | None = None,
) -> Ints:
    """Give each job its configuration for this round (m,), -1 for none.

    Locked jobs keep what they hold; `settled` (m,) picks come next; then, for shares, every job by falling priority
    (ties: share, what is held, what is gained; as Gavel breaks them where its deficit (m, n) is given: deficit, share,
    row), work conserving: GPUs left over go to jobs without a share, each in its fastest configuration. Picks are taken
    as they are, held ones first. What does not fit, breaks a limit or is `barred` (m, K) is skipped. With `type_order`
    the types are filled one after the other.

    A waiting job that only locks which end keep from its GPUs reserves the type (n,): nobody else starts there, so that
    the locks run out and a gang is not starved by a stream of smaller jobs. Where rows are pairs of jobs, `members`
    (m, 2) says of which: who is picked in one row is out of the others.
    """
    room = Room(problem, limits, reserved)
    picks = _Picks.none(len(problem.weight), members)
    for i in np.flatnonzero(problem.locked).tolist():  # whatever the limits say now: it is never stopped
        picks.give(i, int(problem.held[i]))
        room.take(i, int(problem.held[i]), until_s=float(problem.unlock_s[i]))
    allowed = problem.rate > 0 if barred is None else (problem.rate > 0) & ~barred
    if settled is not None:
        _fill(room, picks, _in_turn(problem, settled, allowed))
    if decision.shares is None:
        _fill(room, picks, _in_turn(problem, _picks_of(decision), allowed))
        return picks.given
    queue = _Queue(problem, decision.shares, priorities(problem, decision.shares, round_s=round_s), deficit)
    for on_type in _passes(problem, type_order):
        _fill(room, picks, queue.order(allowed & on_type & (decision.shares > 0)))
        if room.full:
            break
        spare = allowed & on_type & (decision.shares <= 0) & picks.open[:, None] & room.holds()
        _fill(room, picks, queue.order(spare))
    return picks.given


@dataclass(frozen=True, eq=False)
class _Picks:
    """Picks being made: rows (m,), -1 for none yet; others, by job, all rows that it is in, if it can be in several."""

    rows: Ints
    members: Ints | None
    others: dict[int, Ints]

    @classmethod
    def none(cls, rows: int, members: Ints | None) -> Self:
        others = dict[int, list[int]]()
        for row, jobs in enumerate([] if members is None else members.tolist()):
            for job in jobs:
                others.setdefault(job, []).append(row)
        return cls(np.full(rows, -1, dtype=np.int64), members, {job: np.array(of) for job, of in others.items()})

    @property
    def open(self) -> Bools:
        """Who may still be picked."""
        return np.asarray(self.rows == -1)

    @property
    def given(self) -> Ints:
        return np.maximum(self.rows, -1)

    def give(self, i: int, k: int) -> None:
        if self.members is not None:
            for job in self.members[i].tolist():
                self.rows[self.others[job]] = OUT
        self.rows[i] = k


@dataclass(frozen=True, eq=False)
class _Queue:
    """The order in which jobs are served with configurations."""

    problem: Problem
    shares: Floats
    priority: Floats
    deficit: Floats | None

    def order(self, candidates: Bools) -> _Wants:
        """Give the candidates (m, K), most urgent first."""
        i, k = candidates.nonzero()
        priority, share = self._least(self.priority, i, k), self.shares[i, k]
        speed = self.problem.rate[i, k] / self.problem.base_rate[i]
        elsewhere = self.problem.held[i] != k
        if self.deficit is None:
            keys = [-priority.round(TIE), -share.round(TIE), elsewhere, -speed]  # then the row, as it is
        else:
            keys = [-priority, -self._least(self.deficit, i, k), -share, elsewhere, i, -speed]
        turn = np.lexsort(keys[::-1])
        return i[turn], k[turn]

    def _least(self, by_type: Floats, i: Ints, k: Ints) -> Floats:
        """Of a gang of mixed types, the type that the job is least due."""
        lone = self.problem.usage.argmax(axis=0)
        values: Floats = by_type[i, lone[k]]
        for j, mixed in enumerate((self.problem.usage > 0) & (np.arange(len(self.problem.usage))[:, None] != lone)):
            values = np.where(mixed[k], np.minimum(values, by_type[i, j]), values)
        return values


def _passes(problem: Problem, type_order: Sequence[int] | None) -> list[Bools]:
    """Configurations (K,) to be filled together: all, or those of one type after those of another."""
    if type_order is None:
        return [np.ones(len(problem.nodes), dtype=np.bool_)]
    lone = problem.usage.argmax(axis=0)
    return [lone == j for j in type_order]


def _in_turn(problem: Problem, picks: Ints, allowed: Bools) -> _Wants:
    rows = np.flatnonzero(picks >= 0)
    rows = rows[allowed[rows, picks[rows]]]
    rows = rows[np.argsort(picks[rows] != problem.held[rows], kind="stable")]
    return rows, picks[rows]


def _fill(room: Room, picks: _Picks, wanted: _Wants) -> None:
    """Serve them in turn; what nobody can have any more is left out, unless somebody may wait for it."""
    rows, columns = wanted
    while rows.size and not room.full:
        if not room.awaited:
            open_to_them = picks.open[rows] & room.holds()[columns]
            rows, columns = rows[open_to_them], columns[open_to_them]
        done = _fill_some(room, picks, rows[:TOGETHER].tolist(), columns[:TOGETHER].tolist())
        rows, columns = rows[done:], columns[done:]


def _fill_some(room: Room, picks: _Picks, rows: list[int], columns: list[int]) -> int:
    """Serve them while what fits now goes on to fit; give how far that went."""
    most, _ = room.still_open()
    for seen, (i, k) in enumerate(zip(rows, columns, strict=True), 1):
        if picks.rows[i] != -1:
            continue
        if not room.fits(i, k):
            room.reserve(i, k)
            continue
        room.take(i, k)
        picks.give(i, k)
        if not room.has(most):
            return seen
    return len(rows)


def _picks_of(decision: Decision) -> Ints:
    if decision.picks is None:
        raise ValueError("a decision has neither shares nor picks")
    return decision.picks
