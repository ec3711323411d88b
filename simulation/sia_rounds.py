"""Rounds as Sia's simulator plans them."""

from dataclasses import dataclass

import numpy as np

from allocation.arrays import Floats, Ints
from allocation.limits import Limits
from allocation.parameters import Policy
from allocation.problem import Problem
from allocation.rounds import realise
from simulation.rounds import Planned
from simulation.state import State


@dataclass(eq=False)
class SiaRounds:
    """The policy is asked every round; where on its type a job's GPUs are makes no difference, so moves are free.

    Who is being restored keeps what he holds, unless the policy shares out time; what jobs received counts for ever.
    """

    policy: Policy
    round_s: float
    whole_steps: bool = False
    first_start_costs: bool = True

    def plan(self, state: State, *, changed: bool) -> Planned:
        rows = state.active
        problem = state.problem(locked=(left := _restoring(state)) > 0, unlock_s=np.where(left > 0, left, np.inf))
        state.set_isolated(problem)
        decision = self.policy(problem)
        if decision.shares is None:
            picks = realise(problem, decision, Limits.none(len(rows)), round_s=self.round_s)
        else:
            picks = _by_priority(state, problem, decision.shares, self.round_s)
        return Planned(picks, (picks >= 0) & (picks != state.held[rows]))

    def relax(self) -> None:
        """Every round is planned anew."""


def _restoring(state: State) -> Floats:
    """Seconds until those active jobs go on that hold GPUs and are being restored."""
    rows = state.active
    left: Floats = np.where(state.held[rows] >= 0, state.restoring_s[rows], 0)
    return left


def _by_priority(state: State, problem: Problem, shares: Floats, round_s: float) -> Ints:
    """Picks (m,) as Gavel's policies make them there: by share over the part of a type's time that a job received.

    All time since the beginning counts, that of jobs that are done included; who has no share fills up what is left,
    type by type.
    """
    on_type = (problem.usage > 0).T
    came = state.jobs.arrival_s <= state.now_s
    received = (round_s / 2 + state.received_s) @ on_type.T
    part = received[state.active] / received[came].sum(axis=0)
    i, k = (problem.rate > 0).nonzero()
    turn = np.lexsort((i, k, -shares[i, k], -(shares / part)[i, k]))
    picks, room = np.full(len(shares), -1), problem.capacity.copy()
    for row, configuration in zip(i[turn].tolist(), k[turn].tolist(), strict=True):
        wanted = problem.usage[:, configuration]
        if picks[row] < 0 and (wanted <= room).all():
            picks[row], room = configuration, room - wanted
    return picks
