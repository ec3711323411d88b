"""Suggestions: the hyperparameters of the next trial, a pure function of the sweep's seed and its trials so far."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from zlib import crc32

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.samplers import BaseSampler, RandomSampler, TPESampler
from optuna.trial import FrozenTrial, TrialState, create_trial

from sweeps.space import Choice, Parameter, Params, Space, grid_point

optuna.logging.set_verbosity(optuna.logging.WARNING)
STARTUP_TRIALS = 10
"""Random trials before the first that is informed by results: Optuna's default."""


class Method(StrEnum):
    """How hyperparameters are chosen."""

    GRID = "grid"
    RANDOM = "random"
    BAYES = "bayes"
    """Tree-structured Parzen estimator (Bergstra et al., NeurIPS 2011), by Optuna."""
    POPULATION = "population"
    """The first members are random; `sweeps.population` has what follows them."""


@dataclass(frozen=True)
class PastTrial:
    """A trial so far; scores are lower where it is better."""

    params: Params
    score: float | None = None
    """Of a trial that has ended well; None: it runs, or was stopped at a rung."""
    at_rungs: dict[int, float] = field(default_factory=dict)
    """Steps → score."""
    is_over: bool = False


def suggest(method: Method, space: Space, seed: int, past: Sequence[PastTrial]) -> Params:
    """Hyperparameters of the trial after these; the same rows give the same answer."""
    number = len(past)
    if method is Method.GRID:
        return grid_point(space, number)
    study = optuna.create_study(sampler=_sampler(method, crc32(f"{seed}:{number}".encode())))
    distributions = {name: _distribution(parameter) for name, parameter in space.items()}
    if method is Method.BAYES:
        study.add_trials(
            [_frozen(trial, distributions) for trial in past if trial.score is not None or not _is_lost(trial)]
        )
    asked = study.ask(fixed_distributions=distributions).params
    return {name: asked[name] for name in space}


def _sampler(method: Method, seed: int) -> BaseSampler:
    if method is not Method.BAYES:
        return RandomSampler(seed=seed)
    return TPESampler(seed=seed, multivariate=True, constant_liar=True, n_startup_trials=STARTUP_TRIALS)


def _is_lost(trial: PastTrial) -> bool:
    """Whether nothing is to be learnt from it: it failed before it had a result."""
    return trial.is_over and trial.score is None and not trial.at_rungs


def _frozen(trial: PastTrial, distributions: dict[str, BaseDistribution]) -> FrozenTrial:
    state = TrialState.COMPLETE if trial.score is not None else _state(trial)
    return create_trial(
        state=state,
        params=trial.params,
        distributions=distributions,
        value=trial.score,
        intermediate_values=trial.at_rungs,
    )


def _state(trial: PastTrial) -> TrialState:
    """With a result at a rung it is no longer unknown: the sampler takes a running trial for a bad one."""
    return TrialState.PRUNED if trial.is_over or trial.at_rungs else TrialState.RUNNING


def _distribution(parameter: Parameter) -> BaseDistribution:
    if isinstance(parameter, Choice):
        return CategoricalDistribution(parameter.values)
    if parameter.is_integer:
        step = int(parameter.step or 1)
        return IntDistribution(int(parameter.least), int(parameter.most), log=parameter.log, step=step)
    return FloatDistribution(parameter.least, parameter.most, log=parameter.log, step=parameter.step)
