r"""Restart times of jobs by shrinkage: from what is declared to the workload, and from there to a place.

A restart is a stop, from its request until the processes have saved and ended, and a start, from the launch to the
first step that is reported. Of n times :math:`x_i`, where m was expected before,

.. math::
    \ln \hat x = \frac{k \ln m + \sum_i \ln x_i}{k + n}

with k = 2: a geometric mean, so that one start behind a disk that hung does not decide. A workload's starts are shrunk
towards what the owner declares, times at a place towards the workload's. Owners declare the time to restore alone:
until a stop was seen, it is taken to cost nothing. Who declares 0 wants no restart to be counted, and none is: with
m = 0 the mean is 0.
"""

from collections.abc import Callable, Sequence
from math import exp, fsum, log
from typing import NamedTuple

PRIOR_TIMES = 2
"""k: what is known before counts as much as so many measured times."""
LEAST_S = 0.1
"""Shorter times count as this: moments are recorded by turns of a loop."""


class RestartPlace(NamedTuple):
    """What restart times depend on beside the workload: the GPU type, and the engine, which has the checkpoints."""

    gpu_type: str
    engine: str


class MeasuredTime(NamedTuple):
    """Duration of a stop or a start, in seconds."""

    place: RestartPlace
    seconds: float


class MeasuredRestarts(NamedTuple):
    """What was measured of a workload's restarts, the latest first."""

    stops: Sequence[MeasuredTime] = ()
    starts: Sequence[MeasuredTime] = ()


class RestartTime(NamedTuple):
    """Expected duration of a restart, and the measured times behind it; `at_place`: those at the place asked of."""

    stop_s: float
    start_s: float
    stops: int = 0
    starts: int = 0
    stops_at_place: int = 0
    starts_at_place: int = 0

    @property
    def seconds(self) -> float:
        return self.stop_s + self.start_s

    @property
    def is_measured(self) -> bool:
        return self.stops + self.starts > 0


def anywhere(_: RestartPlace) -> bool:
    """Every place: what is known of the workload."""
    return True


def restart_time(
    declared_s: float,
    measured: MeasuredRestarts,
    *,
    stops_at: Callable[[RestartPlace], bool] = anywhere,
    starts_at: Callable[[RestartPlace], bool] = anywhere,
) -> RestartTime:
    """Expected restart of a job that declares `declared_s`, stopped and started at such places."""
    if not declared_s:
        return RestartTime(0.0, 0.0)
    stops, starts = ([one.seconds for one in times] for times in measured)
    stops_there = [one.seconds for one in measured.stops if stops_at(one.place)]
    starts_there = [one.seconds for one in measured.starts if starts_at(one.place)]
    stop_s = _at_place(_shrunk(None, stops), stops, stops_there)
    start_s = _at_place(_shrunk(declared_s, starts), starts, starts_there)
    return RestartTime(stop_s, start_s, len(stops), len(starts), len(stops_there), len(starts_there))


def _at_place(of_workload_s: float, times: Sequence[float], there: Sequence[float]) -> float:
    return of_workload_s if len(there) == len(times) else _shrunk(of_workload_s, there)


def _shrunk(before_s: float | None, times: Sequence[float]) -> float:
    """Geometric mean of the times and of what was expected before; None: nothing was."""
    if not times:
        return before_s or 0.0
    logs = [log(max(seconds, LEAST_S)) for seconds in times]
    prior = [] if before_s is None else [log(max(before_s, LEAST_S))] * PRIOR_TIMES
    return exp(fsum(logs + prior) / len(logs + prior))
