"""Interface between the simulated clock and the rules that plan its rounds."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from allocation.types import Bools, Ints
from simulation.clock.state import State


@dataclass(frozen=True, eq=False)
class PlannedRound:
    """Assignment (A,) of the active jobs, a configuration or -1, and which of them (A,) start or move.

    mates (A,) are the jobs (rows of the trace) that share their GPUs, or -1; None: no job shares GPUs.

    steady: the plan of the next rounds is the same until a job arrives or finishes.
    """

    assignment: Ints
    starts: Bools
    steady: bool = False
    mates: Ints | None = None

    @property
    def shared_with(self) -> Ints:
        """The mates (A,), -1 for all jobs where no GPU is shared."""
        return np.full(len(self.assignment), -1) if self.mates is None else self.mates


class RoundRules(Protocol):
    """Rules by which rounds are planned.

    whole_steps: steps are not split, and a round ends with the last of its jobs; first_start_costs: the first start
    takes the time of a restart, too.
    """

    round_s: float
    whole_steps: bool
    first_start_costs: bool

    def plan(self, state: State, *, changed: bool) -> PlannedRound:
        """Plan the next round; `changed`: jobs arrived or finished since the last one."""

    def relax(self) -> None:
        """Drop rules that wait for time to pass: no job runs and none will arrive."""
