"""Schedulers of Ray Tune and Syne Tune as rules of the replay of sweeps: their own classes, driven by hand.

Neither is a dependency: `.tools/bin/uv run --frozen --no-sync --with 'ray[tune]==2.60.0' --with syne-tune==0.16.0
python -m benchmarks.sweeps --peers`. Both classes stop, and go on with, a trial; neither holds one.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import import_module
from types import SimpleNamespace
from typing import Any

from benchmarks.sweeps import EPOCHS, ETA, FIXED, Rules, Trial
from sweeps.successive_halving import Halving

METRIC, TIME = "error", "training_iteration"
LIMITS = {"max_t": EPOCHS, "grace_period": 1, "reduction_factor": ETA}


def peer_rules() -> Rules:
    """New schedulers, which have seen no trial, as rules on fixed widths."""
    return {"Ray Tune's class": (_Ray(), True, FIXED), "Syne Tune's class": (_SyneTune(), True, FIXED)}


class _Ray:
    """`AsyncHyperBandScheduler`; it is told results as its controller would."""

    def __init__(self) -> None:
        made: Any = import_module("ray.tune.schedulers").AsyncHyperBandScheduler
        self._scheduler = made(metric=METRIC, mode="min", time_attr=TIME, **LIMITS)
        self._seen: dict[int, Any] = {}

    def __call__(
        self, trials: Sequence[Trial], trial: Trial, rule: Halving, expected: int
    ) -> tuple[bool, list[int], list[int]]:
        if trial.number not in self._seen:
            self._seen[trial.number] = SimpleNamespace(trial_id=str(trial.number))
            self._scheduler.on_trial_add(None, self._seen[trial.number])
        answer = self._scheduler.on_trial_result(None, self._seen[trial.number], _result(trial, rule))
        return _decision(trial, goes_on=answer == "CONTINUE")


class _SyneTune:
    """`AsynchronousSuccessiveHalving`, with a searcher that nobody asks."""

    def __init__(self) -> None:
        made: Any = import_module("syne_tune.optimizer.schedulers.asha").AsynchronousSuccessiveHalving
        space = {"x": import_module("syne_tune.config_space").uniform(0, 1)}
        self._scheduler = made(space, metric=METRIC, time_attr=TIME, random_seed=0, **LIMITS)
        self._seen: dict[int, Any] = {}

    def __call__(
        self, trials: Sequence[Trial], trial: Trial, rule: Halving, expected: int
    ) -> tuple[bool, list[int], list[int]]:
        if trial.number not in self._seen:
            made: Any = import_module("syne_tune.backend.trial_status").Trial
            self._seen[trial.number] = made(trial.number, {"x": 0.5}, datetime.now(UTC))
            self._scheduler.on_trial_add(self._seen[trial.number])
        answer = self._scheduler.on_trial_result(self._seen[trial.number], _result(trial, rule))
        return _decision(trial, goes_on=answer == "CONTINUE")


def _result(trial: Trial, rule: Halving) -> dict[str, float]:
    return {TIME: rule.rungs[trial.target], METRIC: trial.scores[-1]}


def _decision(trial: Trial, *, goes_on: bool) -> tuple[bool, list[int], list[int]]:
    return goes_on, [], [] if goes_on else [trial.number]
