"""One run of a trace, from its first round to its figures."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from simulation.engine import Round, Simulation
from simulation.figures import figures_of
from simulation.trace import Trace

Watcher = Callable[[Round], None]


@dataclass(frozen=True, eq=False)
class Run:
    """A simulation that is ready to go, and what its figures need besides."""

    simulation: Simulation
    gpu_types: Sequence[str]
    prices: Sequence[float] | None
    trace: Trace

    @property
    def total(self) -> int:
        """How many jobs will be done in the end."""
        return int(self.simulation.state.jobs.runnable.sum())

    def finish(self, watch: Watcher) -> dict[str, Any]:
        """Go to the end, every round shown to the watcher, and give the figures."""
        began = perf_counter()
        self.simulation.watch = watch
        self.simulation.run()
        wall_s = perf_counter() - began
        decided_s = self.simulation.decided_s
        figures = figures_of(
            self.simulation.state, self.gpu_types, decided_s=decided_s, wall_s=wall_s, prices=self.prices
        )
        return {**figures, "skipped": self.trace.skipped, "rounded_up": self.trace.rounded_up}
