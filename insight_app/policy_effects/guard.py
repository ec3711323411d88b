"""Guard of a policy: its effects compared with the lab's prediction, widened by the lab's error and by chance. Pure.

The lab's error is the factor by which its simulation of the policy before was off what really happened, taken to either
side. Chance is three standard errors of a mean: the greater of that of the jobs seen, by batch means, because jobs of
one queue wait together, and the spread between past windows of the same length, because queues are long for hours.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf, sqrt
from typing import Any, NamedTuple, Self

import numpy as np

from allocation.types import Bools, Floats
from insight_app.models import PolicyGuard
from simulation.results.time_units import format_duration

State = PolicyGuard.State
Figures = Mapping[str, float | None]
Spread = Mapping[str, float | None]
"""Standard deviation of the mean of each figure between past windows of so many `hours`."""

LEAST_WINDOWS = 5
LEAST_JOBS = 30
LEAST_H = 1.0
"""Shortest time over which utilization is judged."""
BATCHES = 10
STANDARD_ERRORS = 3.0
OTHER_LOAD = 2.0
"""From so many times as many arrivals as in the lab's history on, delays are not taken to be the policy's doing."""


@dataclass(frozen=True, eq=False)
class Observed:
    """Jobs since the change; arrays of those that ended are in the order of their ends, times in hours."""

    hours: float
    """Since the change."""
    jct_h: Floats
    queueing_h: Floats
    restarts: Floats
    came_after: Bools
    """Whether each job that ended was submitted since the change: the others waited under both policies."""
    waits_h: Floats
    """Until the first start, or so far, of jobs submitted since; in their order."""
    arrivals: int
    utilization: float | None


@dataclass(frozen=True)
class Predicted:
    """Figures of the lab: of the chosen policy, of the one before, and the actual ones under the latter."""

    chosen: Figures
    present: Figures
    actual: Figures
    arrivals_per_h: float | None
    spreads: Sequence[Spread]
    """Of windows before the change, the shortest first."""

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Self:
        names = ("chosen", "present", "actual", "arrivals_per_h", "spreads")
        return cls(**{name: document[name] for name in names})

    def spread(self, figure: str, hours: float) -> float | None:
        """Spread between the longest windows not longer than the time since the change; None: not known."""
        known = [one for one in self.spreads if one[figure] is not None]
        short = [one for one in known if (one["hours"] or 0.0) <= hours] or known[:1]
        return short[-1][figure] if short else None


class Band(NamedTuple):
    low: float
    high: float


class Measure(NamedTuple):
    """A figure that is watched: its name, the predicted figure, and the difference that is ignored."""

    label: str
    figure: str
    grain: float
    values: Callable[[Observed], Floats]
    lower_is_worse: bool = False
    most: float = inf
    lasts: bool = False
    """The values are so far: they may still grow, and are never better than predicted."""


MINUTE_H = 1 / 60
MEASURES = {
    "avg_jct_h": Measure("mean job completion time", "avg_jct_h", MINUTE_H, lambda seen: seen.jct_h),
    "queueing_h": Measure("mean time not running", "queueing_h", MINUTE_H, lambda seen: seen.queueing_h),
    "wait_h": Measure("mean wait so far", "queueing_h", MINUTE_H, lambda seen: seen.waits_h, lasts=True),
    "restarts_per_job": Measure("restarts per job", "restarts_per_job", 0.05, lambda seen: seen.restarts),
    "utilization": Measure("GPUs busy", "utilization", 0.02, lambda _: np.zeros(0), lower_is_worse=True, most=1.0),
}


@dataclass(frozen=True)
class Effect:
    """A measure since the change, and the band in which it was expected."""

    measure: str
    meaning: str
    state: str
    value: float | None
    jobs: int | None
    """None: it is not a mean over jobs."""
    predicted: float
    low: float
    high: float


@dataclass(frozen=True)
class Verdict:
    state: PolicyGuard.State
    effects: Sequence[Effect]
    message: str


def judge(predicted: Predicted, observed: Observed) -> Verdict:
    """Verdict on the effects: within the band or not, and whether another load may explain a worse one."""
    effects = list(_effects(predicted, observed))
    arrivals = _arrivals(predicted, observed)
    worse = [effect for effect in effects if effect.state == State.WORSE]
    if any(not _excused(effect, arrivals) for effect in worse):
        return Verdict(State.WORSE, effects, f"{_left(worse)} Undo is recommended.")
    if worse:
        return Verdict(State.OTHER_LOAD, effects, f"{_left(worse)} {_about(arrivals)}")
    if len(observed.jct_h) < LEAST_JOBS:
        return Verdict(State.TOO_FEW, effects, f"Too few jobs yet: {len(observed.jct_h)} of {LEAST_JOBS} have ended.")
    if better := [effect for effect in effects if effect.state == State.BETTER]:
        return Verdict(State.BETTER, effects, _left(better))
    return Verdict(State.WITHIN, effects, "The effects are as the lab predicted.")


# -- bands -------------------------------------------------------------------------------------------------------


def lab_band(predicted: float, simulated: float, actual: float) -> Band:
    """Prediction divided and multiplied by the lab's error factor; minus and plus its error if a figure is zero."""
    if simulated > 0 and actual > 0:
        off = max(simulated / actual, actual / simulated)
        return Band(predicted / off, predicted * off)
    return Band(max(predicted - abs(simulated - actual), 0.0), predicted + abs(simulated - actual))


def standard_error(values: Floats) -> float:
    """Standard error of the mean of a correlated series by batch means; at least that of independent values."""
    if len(values) < LEAST_JOBS:
        return inf
    means = np.array([batch.mean() for batch in np.array_split(values, BATCHES)])
    return max(float(values.std(ddof=1)) / sqrt(len(values)), float(means.std(ddof=1)) / sqrt(BATCHES))


def window_spread(at_h: Floats, values: Floats, hours: float) -> float | None:
    """Standard deviation between windows of so many hours of the mean of the values in each; None: too few windows."""
    _, window = np.unique(np.floor(at_h / hours), return_inverse=True)
    if not len(window) or window.max() + 1 < LEAST_WINDOWS:
        return None
    means = np.bincount(window, values) / np.bincount(window)
    return float(means.std(ddof=1))


def expected(predicted: Predicted, figure: str, part_after: float) -> Band | None:
    """Band of a mean of which this fraction is from after the change; the rest may be as under the previous policy."""
    figures = predicted.chosen.get(figure), predicted.present.get(figure), predicted.actual.get(figure)
    chosen, present, actual = figures
    if chosen is None or present is None or actual is None:
        return None
    after, before = lab_band(chosen, present, actual), lab_band(present, present, actual)
    either = Band(min(after.low, before.low), max(after.high, before.high))
    return Band(*(part_after * one + (1 - part_after) * other for one, other in zip(after, either, strict=True)))


# -- effects -----------------------------------------------------------------------------------------------------


def _effects(predicted: Predicted, observed: Observed) -> Iterator[Effect]:
    for name, measure in MEASURES.items():
        of_jobs = name != "utilization"
        part = 1.0 if measure.lasts or not of_jobs else _part_after(observed)
        if band := expected(predicted, measure.figure, part):
            spread = _spread(predicted, observed, measure, part)
            found = _of_jobs(measure, observed, spread or 0.0) if of_jobs else _of_time(observed, spread)
            yield _effect(name, measure, found, band, float(predicted.chosen[measure.figure] or 0))


def _part_after(observed: Observed) -> float:
    return float(observed.came_after.mean()) if len(observed.came_after) else 1.0


class _Found(NamedTuple):
    value: float | None
    jobs: int | None
    chance: float
    """How far chance alone may bring it from what is expected; infinite: too little is known."""


def _spread(predicted: Predicted, observed: Observed, measure: Measure, part_after: float) -> float | None:
    """Spread between past windows, scaled to the predicted mean; None: not known."""
    spread = predicted.spread(measure.figure, observed.hours)
    if spread is None:
        return None
    chosen, actual = predicted.chosen[measure.figure], predicted.actual[measure.figure]
    scale = chosen / actual if chosen and actual else 1.0
    return spread * (part_after * scale + 1 - part_after)


def _of_jobs(measure: Measure, observed: Observed, spread: float) -> _Found:
    values = measure.values(observed)
    chance = STANDARD_ERRORS * max(standard_error(values), spread)
    return _Found(float(values.mean()) if len(values) else None, len(values), chance)


def _of_time(observed: Observed, spread: float | None) -> _Found:
    known = observed.utilization is not None and observed.hours >= LEAST_H
    return _Found(observed.utilization, None, STANDARD_ERRORS * spread if known and spread is not None else inf)


def _effect(name: str, measure: Measure, found: _Found, lab: Band, predicted: float) -> Effect:
    reach = measure.grain + (found.chance if found.chance < inf else 0.0)
    band = Band(0.0 if measure.lasts else max(lab.low - reach, 0.0), min(lab.high + reach, measure.most))
    state = State.TOO_FEW if found.value is None or found.chance == inf else _side(found.value, band, measure)
    return Effect(name, measure.label, state.value, found.value, found.jobs, predicted, *band)


def _side(value: float, band: Band, measure: Measure) -> PolicyGuard.State:
    if band.low <= value <= band.high:
        return State.WITHIN
    return State.WORSE if (value < band.low) == measure.lower_is_worse else State.BETTER


# -- load and words ----------------------------------------------------------------------------------------------


def _arrivals(predicted: Predicted, observed: Observed) -> float | None:
    """Ratio of the arrival rate to that of the lab's history."""
    usual = predicted.arrivals_per_h
    return observed.arrivals / observed.hours / usual if usual and observed.hours > 0 else None


def _excused(effect: Effect, arrivals: float | None) -> bool:
    """Whether another load than in the lab's history may be the reason."""
    if arrivals is None:
        return False
    return arrivals < 1 / OTHER_LOAD if MEASURES[effect.measure].lower_is_worse else arrivals > OTHER_LOAD


def _about(arrivals: float | None) -> str:
    return f"But {arrivals or 0:.2g} times as many jobs arrive as in the lab's history, which may be the reason."


def _left(effects: Sequence[Effect]) -> str:
    return f"Outside the lab's prediction: {'; '.join(map(_compared, effects))}."


def _compared(effect: Effect) -> str:
    value, low, high = (amount(each or 0.0, effect.measure) for each in (effect.value, effect.low, effect.high))
    return f"{effect.meaning}: {value} ({low} to {high} expected)"


def amount(value: float, measure: str) -> str:
    """The value in the unit of the measure."""
    if measure == "utilization":
        return f"{100 * value:.0f} %"
    return format_duration(3600 * value) if measure.endswith("_h") else f"{value:.3g}"
