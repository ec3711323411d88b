"""Rules of a simulation of one job by which it gets the GPUs that are written down."""

from dataclasses import dataclass, field

import numpy as np

from simulation.clock.round_rules import PlannedRound
from simulation.clock.state import State
from simulation.workloads.jobs import Jobs
from tests.simulation.sia_reference import ROUND_S, sia


@dataclass
class ToldRounds:
    """Rules that give the only job the GPUs that are written down."""

    jobs: Jobs
    gpu_types: tuple[str, ...]
    told: dict[float, tuple[str, tuple[int, ...]]]
    round_s: float = ROUND_S
    whole_steps: bool = False
    first_start_s: float | None = None
    event_delay_s: float | None = None
    shortfalls: list[float] = field(default_factory=list)
    """By what part of the best each told configuration is worse by `sia`, where it chooses anew."""
    _now: tuple[str, tuple[int, ...]] = ("", ())

    def plan(self, state: State, *, changed: bool) -> PlannedRound:
        if not state.isolated_rate[0]:
            state.set_isolated(state.problem())
        self._now = self.told.get(state.now_s, self._now)
        on = zip(self.jobs.configurations.gpu_type.tolist(), self.jobs.placements, strict=True)
        k = [(self.gpu_types[j], placement) for j, placement in on].index(self._now)
        if state.now_s in self.told and (state.restoring_s[0] == 0 or state.held[0] < 0):
            self._compare(state, k)
        return PlannedRound(np.array([k]), np.array([k]) != state.held[state.active])

    def _compare(self, state: State, k: int) -> None:
        value = sia()(state.problem()).value
        assert value is not None
        self.shortfalls.append(float(1 - value[0, k] / value.max()))

    def relax(self) -> None:
        """Nothing changes."""
