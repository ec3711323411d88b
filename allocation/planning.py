"""One round planned: the function that the service and a simulator share."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from allocation.arrays import Bools, Ints
from allocation.decision import Decision
from allocation.floor import Floor
from allocation.limits import Limits
from allocation.placement import assign, keep
from allocation.policies import Policy
from allocation.problem import Problem
from allocation.reasons import Reason
from allocation.rounds import realise
from allocation.solve import Status

BACKFILL_PASSES = 4


@dataclass(frozen=True, eq=False, kw_only=True)
class Plan:
    """A round planned: picks (m,), a configuration or -1; owner (G,), a row or -1; why each other row is left."""

    decision: Decision
    picks: Ints
    owner: Ints
    left: Mapping[int, tuple[Reason, ...]] = field(default_factory=dict)


def plan_round(problem: Problem, floor: Floor, limits: Limits, policy: Policy, *, round_s: float) -> Plan:
    """Give who runs on which GPUs for the next round.

    What was picked and finds no node is dropped for this round, and what it leaves is offered to the others.
    """
    if not len(problem.weight):
        return _nobody(problem, floor)
    decision = policy(problem)
    picks, owner = _backfilled(problem, decision, floor, limits, round_s)
    owner = keep(problem, picks, floor, owner, limits)
    running = np.isin(np.arange(len(picks)), owner)
    picks = np.where(running, np.where(picks >= 0, picks, problem.held), -1)
    return Plan(decision=decision, picks=picks, owner=owner)


def _backfilled(
    problem: Problem, decision: Decision, floor: Floor, limits: Limits, round_s: float
) -> tuple[Ints, Ints]:
    barred = np.zeros(problem.rate.shape, dtype=np.bool_)
    picks = realise(problem, decision, limits, round_s=round_s)
    owner = assign(problem, picks, floor)
    for _ in range(BACKFILL_PASSES):
        homeless = _homeless(picks, owner)
        if not homeless.any():
            break
        barred[homeless, picks[homeless]] = True
        settled = np.where(homeless, -1, picks)
        picks = realise(problem, decision, limits, round_s=round_s, settled=settled, barred=barred)
        owner = assign(problem, picks, floor, owner)
    return np.where(_homeless(picks, owner), -1, picks), owner


def _homeless(picks: Ints, owner: Ints) -> Bools:
    return (picks >= 0) & ~np.isin(np.arange(len(picks)), owner)


def _nobody(problem: Problem, floor: Floor) -> Plan:
    nobody = np.zeros(0, dtype=np.int64)
    decision = Decision.of_picks(nobody, prices=np.zeros(len(problem.capacity)), status=Status.RULE)
    return Plan(decision=decision, picks=nobody, owner=np.full(len(floor.gpu_node), -1, dtype=np.int64))
