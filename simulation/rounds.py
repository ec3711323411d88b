"""What rules of rounds are to the clock."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from allocation.arrays import Bools, Ints
from simulation.state import State


@dataclass(frozen=True, eq=False)
class Planned:
    """Picks (A,) of the active jobs, a configuration or -1; which of them (A,) start or move.

    mates (A,) are the jobs, rows of the trace, with whom they share their GPUs, or -1; None: nobody does.

    steady: the next rounds will be planned alike, until a job comes or is done.
    """

    picks: Ints
    starts: Bools
    steady: bool = False
    mates: Ints | None = None

    @property
    def shared_with(self) -> Ints:
        """The mates, also where nobody has one."""
        return np.full(len(self.picks), -1) if self.mates is None else self.mates


class Rounds(Protocol):
    """Rules of rounds.

    whole_steps: steps are not split, and a round ends with the last of its jobs; first_start_costs: not only a restart
    takes the time of one.
    """

    round_s: float
    whole_steps: bool
    first_start_costs: bool

    def plan(self, state: State, *, changed: bool) -> Planned:
        """Give the next round; changed: jobs came or were done since the last."""

    def relax(self) -> None:
        """Nothing runs and nobody will come: what waits for time to pass need not."""
