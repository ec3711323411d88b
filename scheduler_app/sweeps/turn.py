"""A turn of a sweep: its rows as they are to be stored, and what is done with its jobs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from jobs_app.models import Sweep, SweepTrial
from sweeps.population import Replacement
from sweeps.space import Params
from sweeps.successive_halving import FAILED

CHANGING = ("state", "values", "target", "value", "copies_fail_since", "message", "ended_at")
"""Columns of a trial that a turn may change."""


class JobNow(NamedTuple):
    """The job of an open trial, and what it has reported."""

    state: str
    held: bool
    hold_next: bool
    step: int
    message: str
    milestones: Mapping[str, float | None]
    """Steps of rungs → value of the metric; `last`: the last one that it reported."""


@dataclass
class Turn:
    """What becomes of a sweep in one turn: its rows as they are to be stored, and what is done with the jobs."""

    sweep: Sweep
    trials: list[SweepTrial]
    state_seen: str
    advanced_at_seen: datetime
    hold: list[SweepTrial] = field(default_factory=list)
    release: list[SweepTrial] = field(default_factory=list)
    cancel: list[SweepTrial] = field(default_factory=list)
    suggested: list[Params] = field(default_factory=list)
    """Hyperparameters of the trials that are started."""
    replacement: Replacement | None = None
    """Made in this turn by a copy of a trial whose job rests: one in a turn, for weights are copied."""
    _seen: dict[int, tuple[Any, ...]] = field(init=False)

    def __post_init__(self) -> None:
        self._seen = {trial.pk: _columns(trial) for trial in self.open_trials}

    @property
    def changed(self) -> list[SweepTrial]:
        """Trials of which a column differs from what was read."""
        return [trial for trial in self.trials if trial.pk in self._seen and _columns(trial) != self._seen[trial.pk]]

    @property
    def open_trials(self) -> list[SweepTrial]:
        return [trial for trial in self.trials if trial.is_open]


def _columns(trial: SweepTrial) -> tuple[Any, ...]:
    return (tuple(trial.values), *(getattr(trial, name) for name in CHANGING if name != "values"))


def end_trial(trial: SweepTrial, state: SweepTrial.State, message: str, now: datetime) -> None:
    trial.state, trial.message, trial.ended_at = state, message[:300], now
    if trial.value is None and trial.own_values:
        trial.value = trial.own_values[-1]


def rest(turn: Turn, trial: SweepTrial, why: str) -> None:
    """Hold its job, which saves and leaves its GPUs."""
    trial.state, trial.message = SweepTrial.State.RESTING, why
    turn.hold.append(trial)


def score_of(sweep: Sweep, value: float | None) -> float:
    """The value with a sign, so that lower is better; one that is no finite number counts as failed."""
    if value is None:
        return FAILED
    return -value if sweep.goal == Sweep.Goal.MAXIMIZE else value
