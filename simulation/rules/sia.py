"""Rules of Sia's simulator: the policy decides every round; GPUs of a type are interchangeable."""

from dataclasses import dataclass

import numpy as np

from allocation.policies.parameters import Policy
from allocation.problem import Problem
from allocation.quotas import Quotas
from allocation.rounds.mechanism import RoundAssignment, realise
from allocation.types import Floats, Ints
from simulation.clock.round_rules import PlannedRound
from simulation.clock.state import State


@dataclass(eq=False)
class SiaRules:
    """Plans rounds as Sia's simulator does; moves within a GPU type are free.

    A job that is being restored keeps its configuration unless the policy shares time; time received is never reset.
    """

    policy: Policy
    round_s: float
    whole_steps: bool = False
    first_start_s: float | None = None
    event_delay_s: float | None = None

    def plan(self, state: State, *, changed: bool) -> PlannedRound:
        rows = state.active
        problem = state.problem(locked=(left := _restoring(state)) > 0, unlock_s=np.where(left > 0, left, np.inf))
        state.set_isolated(problem)
        decision = self.policy(problem)
        if decision.shares is None:
            assignment = realise(
                problem, decision, RoundAssignment.start(problem, Quotas.none(len(rows))), round_s=self.round_s
            )
        else:
            assignment = _by_priority(state, problem, decision.shares, self.round_s)
        return PlannedRound(assignment, (assignment >= 0) & (assignment != state.held[rows]))

    def relax(self) -> None:
        """No rule waits: every round is planned anew."""


def _restoring(state: State) -> Floats:
    """Seconds until active jobs that hold GPUs have been restored."""
    rows = state.active
    left: Floats = np.where(state.held[rows] >= 0, state.restoring_s[rows], 0)
    return left


def _by_priority(state: State, problem: Problem, shares: Floats, round_s: float) -> Ints:
    """Picks (m,) as Gavel's policies make them there: by share over the part of a type's time that a job received.

    All time since the beginning counts, including that of finished jobs; jobs without a share fill the GPUs left,
    type by type.
    """
    on_type = (problem.usage > 0).T
    came = state.jobs.arrival_s <= state.now_s
    received = (round_s / 2 + state.received_s) @ on_type.T
    part = received[state.active] / received[came].sum(axis=0)
    i, k = (problem.rate > 0).nonzero()
    turn = np.lexsort((i, k, -shares[i, k], -(shares / part)[i, k]))
    assignment, room = np.full(len(shares), -1), problem.capacity.copy()
    for row, configuration in zip(i[turn].tolist(), k[turn].tolist(), strict=True):
        wanted = problem.usage[:, configuration]
        if assignment[row] < 0 and (wanted <= room).all():
            assignment[row], room = configuration, room - wanted
    return assignment
