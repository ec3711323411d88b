"""Interface between the simulated clock and the rules that plan its rounds."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from allocation.types import Bools, Floats, Ints
from simulation.clock.state import State


@dataclass(frozen=True, eq=False)
class PlannedRound:
    """Assignment (A,) of the active jobs, a configuration or -1, and which of them (A,) start or move.

    mates (A,) are the jobs (rows of the trace) that share their GPUs, or -1; None: no job shares GPUs.

    release_s (A,) are the seconds until the GPUs of a job that starts are free; None: they are free at once.

    speed (A,) is how fast each job's GPUs are in relation to their type; None: all are as fast.

    idle_until_s: no job runs, and none can before that time but one that arrives; None: it is not known.

    steady: the plan of the next rounds is the same until a job arrives or finishes.
    """

    assignment: Ints
    starts: Bools
    steady: bool = False
    mates: Ints | None = None
    release_s: Floats | None = None
    speed: Floats | None = None
    idle_until_s: float | None = None

    @property
    def shared_with(self) -> Ints:
        """The mates (A,), -1 for all jobs where no GPU is shared."""
        return np.full(len(self.assignment), -1) if self.mates is None else self.mates

    @property
    def speeds(self) -> Floats:
        """How fast each job (A,) runs in relation to its rate."""
        return np.ones(len(self.assignment)) if self.speed is None else self.speed

    @property
    def waits_s(self) -> Floats:
        """Seconds (A,) that each job waits for its GPUs."""
        return np.zeros(len(self.assignment)) if self.release_s is None else self.release_s


class RoundRules(Protocol):
    """Rules by which rounds are planned.

    whole_steps: steps are not split, and a round ends with the last of its jobs; first_start_s: time from the decision
    to the first step of a job's first start, None: that of a restart; event_delay_s: time from the arrival or end of a
    job to a round that it causes, None: rounds begin only when the last one has taken round_s.
    """

    round_s: float
    whole_steps: bool
    first_start_s: float | None
    event_delay_s: float | None

    def plan(self, state: State, *, changed: bool) -> PlannedRound:
        """Plan the next round; `changed`: jobs arrived or finished since the last one."""

    def relax(self) -> None:
        """Drop rules that wait for time to pass: no job runs and none will arrive."""
