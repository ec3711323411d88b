"""Rounds as Sia's simulator plans them."""

from dataclasses import dataclass

import numpy as np

from allocation.arrays import Floats
from allocation.limits import Limits
from allocation.parameters import Policy
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
        if decision.shares is not None:
            problem = state.problem()
        picks = realise(problem, decision, Limits.none(len(rows)), round_s=self.round_s)
        return Planned(picks, (picks >= 0) & (picks != state.held[rows]))

    def relax(self) -> None:
        """Every round is planned anew."""


def _restoring(state: State) -> Floats:
    """Seconds until those active jobs go on that hold GPUs and are being restored."""
    rows = state.active
    left: Floats = np.where(state.held[rows] >= 0, state.restoring_s[rows], 0)
    return left
