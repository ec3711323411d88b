"""Rounds as Gavel's simulator plans them."""

from collections.abc import Callable, MutableSequence, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from allocation.decision import Decision, Pairs
from allocation.policies.parameters import Policy
from allocation.problem import Problem
from allocation.quotas import Quotas
from allocation.rounds.mechanism import RoundAssignment, realise
from allocation.space_sharing.pair_rows import PairRows
from allocation.types import Bools, Floats, Ints
from simulation.clock.round_rules import PlannedRound
from simulation.clock.state import State

Number = TypeVar("Number", np.int64, np.float64)


@dataclass(eq=False)
class GavelRules:
    """Those of Gavel's simulator (its sections 3.2 and 5), quirks included.

    The policy is asked only when shares are set anew. In between, GPU types are filled one after the other, in their
    order in `fill` or as `shuffle` leaves it each round; jobs that came since are picked with the others and then
    dropped, though their GPUs are spent. GPUs left idle are lent to jobs without a share, and what a policy picks is a
    share of 1; unless `lend` is off, as for a strict queue: then who was not picked does not run.
    """

    policy: Policy
    round_s: float
    fill: MutableSequence[int]
    shuffle: Callable[[MutableSequence[int]], None] | None = None
    lend: bool = True
    reset_s: float = 1920.0
    """How long shares are kept at least."""
    whole_steps: bool = True
    first_start_s: float | None = 0.0
    event_delay_s: float | None = None
    _changed: bool = False
    _allocated_s: float = 0.0  # Gavel takes 0 for never
    _known: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    _decision: Decision | None = None
    _held: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    _deficit_s: Floats = field(default_factory=lambda: np.zeros((0, 0)))

    def plan(self, state: State, *, changed: bool) -> PlannedRound:
        self._changed |= changed
        since_s = state.now_s - self._allocated_s
        if self._changed and (not self._allocated_s or since_s >= self.reset_s):
            self._allocate(state, since_s)
        rows = state.active
        assignment, mates = self._picks(state)
        assignment = np.where(np.isin(rows, self._known), assignment, -1)
        steady = not self._changed and self._decision is not None and self._decision.assignment is not None
        return PlannedRound(assignment, (assignment >= 0) & (assignment != state.held[rows]), steady, mates)

    def relax(self) -> None:
        self._allocated_s = 0.0

    def _allocate(self, state: State, since_s: float) -> None:
        rows = state.active
        self._end_shares(state, since_s)
        problem = state.problem(held=self._of(rows, self._held))
        state.set_isolated(problem)
        self._decision, self._known = self.policy(problem), rows
        self._held = np.full(len(rows), -1) if self._decision.assignment is None else self._decision.assignment
        if self.lend and self._decision.assignment is not None:
            self._decision = _as_shares(self._decision, problem.rate.shape[1])
        self._changed, self._allocated_s = False, state.now_s

    def _end_shares(self, state: State, since_s: float) -> None:
        if not self._deficit_s.size:
            self._deficit_s = np.zeros_like(state.received_s)
        if (shares := self._decided(state.active).shares) is not None:
            on_type = shares @ (state.jobs.configurations.usage > 0).T
            self._deficit_s[state.active] += on_type * since_s - state.received_s[state.active]
        state.renew_shares()

    def _picks(self, state: State) -> tuple[Ints, Ints]:
        """The configuration of each active job, and the row of the trace that shares it; -1: none."""
        order = list(self.fill)
        if self.shuffle:
            self.shuffle(order)
        rows = state.active
        no_job = np.full(len(rows), -1)
        problem, decision, deficit = _with_all_idle(state.problem()), self._decided(rows), self._deficit_s[rows]
        if decision.pairs is None:
            alone = RoundAssignment.start(problem, Quotas.none(len(rows)))
            return fill_by_type(problem, decision, alone, order, deficit, round_s=self.round_s), no_job
        shared = PairRows.of(problem, decision)
        deficit = np.pad(deficit, ((0, len(decision.pairs)), (0, 0)))
        together = shared.start(Quotas.none(len(deficit)), barred=shared.barred)
        assignment, mate = shared.apart(
            fill_by_type(shared.problem, shared.decision, together, order, deficit, round_s=self.round_s)
        )
        return assignment, np.where(mate >= 0, rows[mate], -1)

    def _decided(self, rows: Ints) -> Decision:
        """What was decided, for these jobs."""
        if self._decision is None or self._decision.shares is None:
            assignment = self._of(rows, self._held)
            return Decision.of_assignment(assignment, prices=np.zeros(0))
        shares = self._of(rows, self._decision.shares, blank=0.0)
        return Decision.of_shares(shares, prices=np.zeros(0), objective=0, dust=0, pairs=self._pairs(rows))

    def _pairs(self, rows: Ints) -> Pairs | None:
        """Those of which both are left."""
        if self._decision is None or self._decision.pairs is None:
            return None
        of_trace, shares = self._known[self._decision.pairs.rows], self._decision.pairs.shares
        both = np.isin(of_trace, rows).all(axis=1)
        return Pairs(np.searchsorted(rows, of_trace[both]), shares[both])

    def _of(self, rows: Ints, values: npt.NDArray[Number], blank: float = -1) -> npt.NDArray[Number]:
        """Values of the jobs that were known at the last decision, for these jobs; blank for who came since."""
        place = np.searchsorted(self._known, rows)
        known = np.isin(rows, self._known)
        found = np.full((len(rows), *values.shape[1:]), blank, dtype=values.dtype)
        found[known] = values[place[known]]
        return found


def _with_all_idle(problem: Problem) -> Problem:
    """The same round where no job holds anything."""
    sharing = problem.sharing and problem.sharing.without_mates()
    return replace(problem, held=np.full(len(problem.weight), -1), sharing=sharing)


def _as_shares(decision: Decision, configurations: int) -> Decision:
    shares = np.eye(configurations + 1)[decision.assignment, :-1]
    return Decision.of_shares(shares, prices=decision.prices, objective=decision.objective)


def priorities(problem: Problem, shares: Floats, *, round_s: float) -> Floats:
    r"""Gavel's priority (m, n) of each job on each type: its share over the part of the type's time that it received.

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


def fill_by_type(
    problem: Problem,
    decision: Decision,
    assignment: RoundAssignment,
    order: Sequence[int],
    deficit: Floats,
    *,
    round_s: float,
) -> Ints:
    """Gavel's variant of the round mechanism: GPU types are filled one after the other, ties go by deficit (m, n)."""
    if decision.shares is None:
        return realise(problem, decision, assignment, round_s=round_s)
    priority = priorities(problem, decision.shares, round_s=round_s)
    gpu_type = problem.usage.argmax(axis=0)
    for j in order:
        on_type = assignment.allowed & (gpu_type == j)
        due = on_type & (decision.shares > 0)
        assignment.fill(_most_urgent_first(problem, decision.shares, due, priority[:, j], deficit[:, j]))
        if assignment.remaining.full:
            break
        spare = on_type & (decision.shares <= 0) & assignment.spare
        assignment.fill(_most_urgent_first(problem, decision.shares, spare, priority[:, j], deficit[:, j]))
    return assignment.given


def _most_urgent_first(
    problem: Problem, shares: Floats, candidates: Bools, priority: Floats, deficit: Floats
) -> tuple[Ints, Ints]:
    """Rows and configurations of the candidates (m, K) by priority (m,), deficit (m,), share, row and speed."""
    i, k = candidates.nonzero()
    speed = problem.rate[i, k] / problem.base_rate[i]
    turn = np.lexsort((-speed, i, -shares[i, k], -deficit[i], -priority[i]))
    return i[turn], k[turn]
