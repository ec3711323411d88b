"""Plan of one scheduling round: decision of the policy, round mechanism, placement and backfilling."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from allocation.decision import Decision, Status
from allocation.inventory import Inventory
from allocation.policies.fifo import fifo
from allocation.policies.parameters import Policy
from allocation.problem import Problem, sharing_of
from allocation.quotas import Quotas
from allocation.remaining_capacity import RemainingCapacity, remaining_after
from allocation.rounds.mechanism import RoundAssignment, realise
from allocation.rounds.placement import place_gangs, return_idle_gpus
from allocation.solvers.few_types import on_few_types
from allocation.solvers.linear_program import SolverFailed
from allocation.space_sharing.pair_rows import PairRows
from allocation.time_budget import TimeBudget
from allocation.types import Bools, Ints

PASSES = 4
MOMENT_S = 1e-3
"""Time budget of a policy that is asked when that of the round is spent: it answers with what is certified at once."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Plan:
    """Plan of a round: assignment (m,) of a configuration or -1, and owner (G,) of each GPU, a row or -1.

    Where two jobs may share GPUs, mate (m,) is the row that shares those of a row, or -1; one of the two owns them.
    """

    decision: Decision
    assignment: Ints
    owner: Ints
    mate: Ints | None = None


def plan_round(problem: Problem, inventory: Inventory, quotas: Quotas, policy: Policy, *, round_s: float) -> Plan:
    """Plan which job runs on which GPUs in the next round.

    An assigned job for which no nodes are found is dropped for this round, and its GPUs are offered to the others.
    """
    if not len(problem.weight):
        return _plan_without_jobs(problem, inventory)
    decision, quotas = _decided(problem, quotas, policy, round_s)
    if decision.pairs is not None:
        return _plan_with_pairs(problem, decision, inventory, quotas, round_s)
    if _nothing_moves(problem, decision, inventory, quotas):
        return Plan(decision=decision, assignment=problem.held, owner=inventory.holder)
    assignment, owner = _backfilled(
        problem, decision, inventory, partial(RoundAssignment.start, problem, quotas), round_s=round_s
    )
    lent = quotas.lent(problem, assignment)
    owner = return_idle_gpus(problem, assignment, inventory, owner, lent, kept=decision.kept)
    assignment = np.where(_running(assignment, owner), np.where(assignment >= 0, assignment, problem.held), -1)
    return Plan(decision=decision, assignment=assignment, owner=owner)


def _plan_with_pairs(
    problem: Problem, decision: Decision, inventory: Inventory, quotas: Quotas, round_s: float
) -> Plan:
    """Plan a round in which two jobs may share GPUs: pairs of jobs are rows of their own."""
    rows = PairRows.of(problem, decision)
    inventory, quotas = rows.inventory(inventory, sharing_of(problem).mate), rows.quotas(quotas)
    assignment, owner = _backfilled(
        rows.problem,
        rows.decision,
        inventory,
        partial(rows.start, quotas),
        barred=rows.barred,
        round_s=round_s,
    )
    holding = rows.without_busy(assignment >= 0)
    owner = return_idle_gpus(holding, assignment, inventory, owner, quotas)
    assignment, mate = rows.apart(
        np.where(_running(assignment, owner), np.where(assignment >= 0, assignment, holding.held), -1)
    )
    owner = np.where(owner >= 0, rows.members[owner, 0], -1)
    return Plan(decision=decision, assignment=assignment, owner=owner, mate=mate)


def _nothing_moves(problem: Problem, decision: Decision, inventory: Inventory, quotas: Quotas) -> bool:
    """Whether each job is assigned just the GPUs that it holds, and there are no quotas."""
    if (
        quotas.group.size
        or quotas.by_type
        or decision.assignment is None
        or not np.array_equal(decision.assignment, problem.held)
    ):
        return False
    holds = np.bincount(inventory.holder[inventory.holder >= 0], minlength=len(problem.held))
    return np.array_equal(holds, np.where(problem.held >= 0, problem.gpus[problem.held], 0))


def _decided(problem: Problem, quotas: Quotas, policy: Policy, round_s: float) -> tuple[Decision, Quotas]:
    """Decide within the quotas, and return those in which what teams leave of theirs is lent.

    Guarantees to teams come first. What their jobs could use of a type, but do not, others borrow.
    """
    budget = TimeBudget.of(problem)
    decision = on_few_types(problem, _asked(policy, problem), budget)
    if not quotas.group.size and quotas.by_type is None:
        return decision, quotas
    again = _Again(problem, policy, round_s, budget)
    guaranteed = quotas.demanded(problem)
    first = again.within(guaranteed, decision)
    if quotas.by_type is None:
        return first, quotas
    lent = quotas.lent(problem, again.realised(guaranteed, first))
    return again.within(lent, decision), lent


@dataclass(frozen=True, eq=False)
class _Again:
    """Ask a policy again without what exceeds a quota: policies know no quotas.

    Otherwise a job at its team's quota would hold up the queue, and the GPUs assigned to it would idle.
    """

    problem: Problem
    policy: Policy
    round_s: float
    budget: TimeBudget

    def within(self, quotas: Quotas, decision: Decision) -> Decision:
        """The decision, without the configurations that quotas forbid once it is realised."""
        closed = np.zeros(self.problem.rate.shape, dtype=np.bool_)
        for _ in range(PASSES):
            if decision.assignment is None and quotas.by_type is None:
                break
            more = closed | _forbidden(self.problem, quotas, decision, self.realised(quotas, decision))
            if (more == closed).all() or (more | (self.problem.rate <= 0)).all():
                break
            closed = more
            decision = self._without(closed)
        return decision

    def realised(self, quotas: Quotas, decision: Decision) -> Ints:
        """The assignment (m,) that the quotas leave of a decision."""
        start = RoundAssignment.start(self.problem, quotas)
        return realise(self.problem, decision, start, round_s=self.round_s)

    def _without(self, closed: Bools) -> Decision:
        rate = np.where(closed, 0, self.problem.rate)
        rows = np.flatnonzero((rate > 0).any(axis=1))
        held = self.problem.held[rows]
        kept = (held >= 0) & (rate[rows, held] > 0)
        limit_s = max(self.budget.left_s(), MOMENT_S)
        rest = self.problem.subset(rows)
        rest = replace(rest, rate=rate[rows], held=np.where(kept, held, -1), solve_limit_s=limit_s)
        return _asked(self.policy, rest).widened(rows, len(rate))


def _asked(policy: Policy, problem: Problem) -> Decision:
    """Decision of the policy, or that of the FIFO queue where its solver failed: a round is never left undecided."""
    try:
        return policy(problem)
    except SolverFailed as error:
        said = f"{str(error).rstrip('.')}. Jobs are served in the order of submission instead."
        return replace(fifo(problem), status=Status.FALLBACK, message=said)


def _forbidden(problem: Problem, quotas: Quotas, decision: Decision, assignment: Ints) -> Bools:
    """Configurations (m, K) that rows want and that would exceed a quota, once others have what they are assigned."""
    remaining, waits = remaining_after(problem, quotas, assignment), (assignment < 0)[:, None]
    if decision.shares is None:
        wanted = (problem.rate > 0) & waits
        forbidden = wanted & _capped(problem, remaining, assignment)[:, None]
    else:  # the round mechanism passes over a row that is at a quota of all types
        wanted, forbidden = decision.shares > 0, np.zeros(problem.rate.shape, dtype=np.bool_)
    if quotas.by_type is None:
        return forbidden
    on_its_types = (np.where(waits.T, 0, problem.usage[:, assignment]).T @ problem.usage) > 0
    beyond = remaining.beyond_type_limits() | remaining.beyond_type_quotas()
    return forbidden | (wanted & ~on_its_types & beyond)


def _capped(problem: Problem, remaining: RemainingCapacity, assignment: Ints) -> Bools:
    """Waiting rows (m,) that would exceed a quota of all types even in their smallest configuration."""
    smallest = np.where(problem.rate > 0, problem.gpus, np.inf).argmin(axis=1)
    return np.array(
        [
            k < 0 and not remaining.allows_in_all(i, s)
            for i, (k, s) in enumerate(zip(assignment, smallest.tolist(), strict=True))
        ]
    )


def _backfilled(
    problem: Problem,
    decision: Decision,
    inventory: Inventory,
    start: Callable[..., RoundAssignment],
    *,
    round_s: float,
    barred: Bools | None = None,
) -> tuple[Ints, Ints]:
    """Assign and place, again without the configurations for which no nodes were found, until all are placed.

    start gives the assignment with which the round mechanism begins, without `barred` (m, K) configurations.
    """
    barred = np.zeros(problem.rate.shape, dtype=np.bool_) if barred is None else barred.copy()
    assignment = realise(problem, decision, start(barred=barred), round_s=round_s)
    owner = place_gangs(problem, assignment, inventory)
    for _ in range(PASSES):
        unplaced = _unplaced(assignment, owner)
        if not unplaced.any():
            break
        barred[unplaced, assignment[unplaced]] = True
        settled = np.where(unplaced, -1, assignment)
        soon = problem.locked & np.isfinite(problem.unlock_s)
        reserved = _types(problem, assignment[unplaced]) & _types(problem, problem.held[soon])
        begun = start(barred=barred, reserved=reserved)
        assignment = realise(problem, decision, begun, round_s=round_s, settled=settled)
        owner = place_gangs(problem, assignment, inventory, _of_rows(assignment == settled, owner))
    return np.where(_unplaced(assignment, owner), -1, assignment), owner


def _of_rows(keep: Bools, owner: Ints) -> Ints:
    """Owner (G,) of each GPU, -1 where the row has lost its configuration: a reservation may drop a placed row."""
    return np.where((owner >= 0) & keep[owner], owner, -1)


def _types(problem: Problem, configurations: Ints) -> Bools:
    """Types (n,) that these configurations use."""
    return np.asarray((problem.usage[:, configurations] > 0).any(axis=1))


def _unplaced(assignment: Ints, owner: Ints) -> Bools:
    return (assignment >= 0) & ~_running(assignment, owner)


def _running(assignment: Ints, owner: Ints) -> Bools:
    running = np.zeros(len(assignment), dtype=np.bool_)
    running[owner[owner >= 0]] = True
    return running


def _plan_without_jobs(problem: Problem, inventory: Inventory) -> Plan:
    no_job = np.zeros(0, dtype=np.int64)
    decision = Decision.of_assignment(no_job, prices=np.zeros(len(problem.capacity)), status=Status.RULE)
    return Plan(decision=decision, assignment=no_job, owner=np.full(len(inventory.gpu_node), -1, dtype=np.int64))
