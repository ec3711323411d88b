"""One round planned: the function that the service and a simulator share."""

from dataclasses import dataclass, replace

import numpy as np

from allocation.arrays import Bools, Ints
from allocation.deadline import Deadline
from allocation.decision import Decision
from allocation.floor import Floor
from allocation.limits import Limits
from allocation.parameters import Policy
from allocation.placement import assign, keep
from allocation.policies.fifo import fifo
from allocation.problem import Problem
from allocation.room import room_after
from allocation.rounds import realise
from allocation.sharing import Rows
from allocation.solve import SolverFailed, Status

PASSES = 4
MOMENT_S = 1e-3
"""Who is asked when the round's time is over still answers, with what is certified at once."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Plan:
    """A round planned: picks (m,), a configuration or -1; owner (G,), a row or -1.

    Where two jobs may share GPUs, mate (m,) is who shares those of a row, or -1; their owner is one of the two.
    """

    decision: Decision
    picks: Ints
    owner: Ints
    mate: Ints | None = None


def plan_round(problem: Problem, floor: Floor, limits: Limits, policy: Policy, *, round_s: float) -> Plan:
    """Give who runs on which GPUs for the next round.

    What was picked and finds no node is dropped for this round, and what it leaves is offered to the others.
    """
    if not len(problem.weight):
        return _nobody(problem, floor)
    decision = _decided(problem, limits, policy, round_s)
    if decision.pairs is not None:
        return _plan_with_pairs(problem, decision, floor, limits, round_s)
    if _nothing_moves(problem, decision, floor, limits):
        return Plan(decision=decision, picks=problem.held, owner=floor.holder)
    picks, owner = _backfilled(problem, decision, floor, limits, round_s=round_s)
    owner = keep(problem, picks, floor, owner, limits)
    picks = np.where(_running(picks, owner), np.where(picks >= 0, picks, problem.held), -1)
    return Plan(decision=decision, picks=picks, owner=owner)


def _plan_with_pairs(problem: Problem, decision: Decision, floor: Floor, limits: Limits, round_s: float) -> Plan:
    """The same, with pairs of jobs as rows of their own."""
    rows = Rows.of(problem, decision)
    floor, limits = rows.floor(floor, problem.mate), rows.limits(limits)
    picks, owner = _backfilled(rows.problem, rows.decision, floor, limits, round_s=round_s, rows=rows)
    holding = rows.without_busy(picks >= 0)
    owner = keep(holding, picks, floor, owner, limits)
    picks, mate = rows.apart(np.where(_running(picks, owner), np.where(picks >= 0, picks, holding.held), -1))
    owner = np.where(owner >= 0, rows.members[owner, 0], -1)
    return Plan(decision=decision, picks=picks, owner=owner, mate=mate)


def _nothing_moves(problem: Problem, decision: Decision, floor: Floor, limits: Limits) -> bool:
    """Whether everybody was picked for what he holds, nobody else was, and no limit has a say."""
    if limits.group.size or decision.picks is None or not np.array_equal(decision.picks, problem.held):
        return False
    holds = np.bincount(floor.holder[floor.holder >= 0], minlength=len(problem.held))
    return np.array_equal(holds, np.where(problem.held >= 0, problem.gpus[problem.held], 0))


def _decided(problem: Problem, limits: Limits, policy: Policy, round_s: float) -> Decision:
    """Ask the policy; it knows no limits, so those whom a limit stops are taken out of its picks and it is asked again.

    Otherwise a job at its team's limit would hold up the queue, and the GPUs picked for it would idle.
    """
    deadline = Deadline.of(problem)
    decision = _asked(policy, problem)
    rows = np.arange(len(problem.weight))
    for _ in range(PASSES):
        if decision.picks is None or not limits.group.size:
            break
        capped = _capped(problem, limits, realise(problem, decision, limits, round_s=round_s))
        if capped[rows].all() or not capped[rows].any():
            break
        rows = rows[~capped[rows]]
        rest = replace(problem.subset(rows), solve_limit_s=max(deadline.left_s(), MOMENT_S))
        decision = _asked(policy, rest).widened(rows, len(problem.weight))
    return decision


def _asked(policy: Policy, problem: Problem) -> Decision:
    """Give the policy's decision, or a queue's where its solver failed: a round is never left undecided."""
    try:
        return policy(problem)
    except SolverFailed as error:
        said = f"{str(error).rstrip('.')}. Jobs are served in the order of submission instead."
        return replace(fifo(problem), status=Status.FALLBACK, message=said)


def _capped(problem: Problem, limits: Limits, picks: Ints) -> Bools:
    """Which waiting rows (m,) a limit would stop even in their smallest configuration."""
    room = room_after(problem, limits, picks)
    smallest = np.where(problem.rate > 0, problem.gpus, np.inf).argmin(axis=1)
    return np.array(
        [k < 0 and not room.allows(i, s) for i, (k, s) in enumerate(zip(picks, smallest.tolist(), strict=True))]
    )


def _backfilled(
    problem: Problem, decision: Decision, floor: Floor, limits: Limits, *, round_s: float, rows: Rows | None = None
) -> tuple[Ints, Ints]:
    barred = np.zeros(problem.rate.shape, dtype=np.bool_) if rows is None else rows.barred.copy()
    members = None if rows is None else rows.members
    picks = realise(problem, decision, limits, round_s=round_s, barred=barred, members=members)
    owner = assign(problem, picks, floor)
    for _ in range(PASSES):
        homeless = _homeless(picks, owner)
        if not homeless.any():
            break
        barred[homeless, picks[homeless]] = True
        settled = np.where(homeless, -1, picks)
        soon = problem.locked & np.isfinite(problem.unlock_s)
        reserved = _types(problem, picks[homeless]) & _types(problem, problem.held[soon])
        picks = realise(
            problem,
            decision,
            limits,
            round_s=round_s,
            settled=settled,
            barred=barred,
            reserved=reserved,
            members=members,
        )
        owner = assign(problem, picks, floor, owner)
    return np.where(_homeless(picks, owner), -1, picks), owner


def _types(problem: Problem, configurations: Ints) -> Bools:
    """Which types (n,) these configurations use."""
    return np.asarray((problem.usage[:, configurations] > 0).any(axis=1))


def _homeless(picks: Ints, owner: Ints) -> Bools:
    return (picks >= 0) & ~_running(picks, owner)


def _running(picks: Ints, owner: Ints) -> Bools:
    running = np.zeros(len(picks), dtype=np.bool_)
    running[owner[owner >= 0]] = True
    return running


def _nobody(problem: Problem, floor: Floor) -> Plan:
    nobody = np.zeros(0, dtype=np.int64)
    decision = Decision.of_picks(nobody, prices=np.zeros(len(problem.capacity)), status=Status.RULE)
    return Plan(decision=decision, picks=nobody, owner=np.full(len(floor.gpu_node), -1, dtype=np.int64))
