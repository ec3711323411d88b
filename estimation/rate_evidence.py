r"""Evidence behind rates: the spread of each, shrunk from a table by source to what was seen, and the number of runs.

Of n runs in a configuration with log rates x, and s_0 of the table, the spread is

.. math::
    s^2 = \frac{k s_0^2 + \sum_i (x_i - \bar x)^2}{k + n - 1}

as if k further runs had differed by s_0, a scaled inverse chi-square prior of the variance. One run tells nothing of
the difference between runs, and leaves the table's.
"""

from collections.abc import Sequence
from math import exp, sqrt
from typing import NamedTuple

import numpy as np

from estimation.estimate import HIGH, NORMAL
from estimation.profile import Knowledge, Measurement
from estimation.scaling import Machines, Source
from estimation.types import Bools, Floats, Ints

SPREADS = {Source.MEASURED: 0.05, Source.DECLARED: 0.15}
"""Standard deviation of the logarithm of the true rate over the one that is told, by the source of that."""
OTHER_SPREAD = 0.3
RUNS_OF_TABLE = 4
"""k: so many runs in a configuration count as much as the table."""
OF_OTHER_PLACES = (Source.ESTIMATED, Source.COMPLETED, Source.FITTED)
"""These go by all runs of the workload; what an owner declares, by none."""
_TABLE = np.array([SPREADS.get(source, OTHER_SPREAD) for source in Source])


class Evidence(NamedTuple):
    """Spread (…, K) of rates, the standard deviation of their logarithms, and runs (…, K) behind each."""

    spread: Floats
    runs: Ints

    def of(self, rows: Bools | Ints) -> "Evidence":
        """Of these rows."""
        return Evidence(self.spread[rows], self.runs[rows])


def table_evidence(source: Ints) -> Evidence:
    """Evidence of rates of which only the source is known."""
    return Evidence(_TABLE[source], np.zeros(source.shape, dtype=np.int64))


def rate_evidence(machines: Machines, known: Sequence[Knowledge], workload: Ints, source: Ints) -> Evidence:
    """Evidence behind the rates of these sources (m, K), of jobs of the workloads known[workload[i]]."""
    here = [_measured_in(machines, one) for one in known]
    spread, runs = (np.array([getattr(one, name) for one in here])[workload] for name in Evidence._fields)
    everywhere = np.array([_all_runs(one) for one in known], dtype=np.int64)[workload][:, None]
    of_other_places = np.where(np.isin(source, OF_OTHER_PLACES), everywhere, 0)
    measured = (source == Source.MEASURED) & ~np.isnan(spread)
    return Evidence(np.where(measured, spread, _TABLE[source]), np.where(measured, runs, of_other_places))


def shrunk_spread(seen: Measurement) -> float:
    """Spread between runs, shrunk to the table's."""
    squares = RUNS_OF_TABLE * SPREADS[Source.MEASURED] ** 2 + seen.weight * seen.deviation**2
    return sqrt(squares / (RUNS_OF_TABLE + max(seen.weight - 1, 0)))


def limits(rate: float, spread: float) -> tuple[float, float]:
    """Limits in steps/s between which four of five runs lie, around a median of this rate."""
    factor = exp(spread * NORMAL.inv_cdf(HIGH))
    return rate / factor, rate * factor


def _measured_in(machines: Machines, knowledge: Knowledge) -> Evidence:
    """Evidence (K,) where the workload was measured; NaN elsewhere."""
    spread, runs = np.full(len(machines.nodes), np.nan), np.zeros(len(machines.nodes), dtype=np.int64)
    for (j, gpus, nodes), seen in knowledge.measured.by_place.items():
        if seen.usable:
            columns = (machines.usage[j] == gpus) & (machines.gpus == gpus) & (machines.nodes == nodes)
            spread[columns], runs[columns] = shrunk_spread(seen), seen.runs
    return Evidence(spread, runs)


def _all_runs(knowledge: Knowledge) -> int:
    return sum(seen.runs for seen in knowledge.measured.by_place.values() if seen.usable)
