"""One simulation of a trace, from its first round to its metrics."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from simulation.clock.metrics import figures_of
from simulation.clock.run import SimulatedRound, Simulation
from simulation.traces.trace import Trace

Watcher = Callable[[SimulatedRound], None]


@dataclass(frozen=True, eq=False)
class TraceRun:
    """A simulation that is ready to run, and what its metrics need besides."""

    simulation: Simulation
    gpu_types: Sequence[str]
    prices: Sequence[float] | None
    trace: Trace

    @property
    def total(self) -> int:
        """Number of jobs that can run and so will finish."""
        return int(self.simulation.state.jobs.runnable.sum())

    def finish(self, watch: Watcher) -> dict[str, Any]:
        """Run to the end, calling the watcher after every round; returns the metrics."""
        began = perf_counter()
        self.simulation.watch = watch
        self.simulation.run()
        wall_s = perf_counter() - began
        decided_s = self.simulation.decided_s
        figures = figures_of(
            self.simulation.state, self.gpu_types, decided_s=decided_s, wall_s=wall_s, prices=self.prices
        )
        return {**figures, "skipped": self.trace.skipped, "rounded_up": self.trace.rounded_up}
