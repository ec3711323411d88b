"""Asynchronous successive halving (ASHA) with promotion: which trials go on at a rung, which rest, which are over.

Li et al., *A System for Massively Parallel Hyperparameter Tuning*, MLSys 2020. A trial that reaches a rung and is among
the best 1/eta of those that have reached it goes on without a restart; another rests there with its checkpoint, and
goes on when later results make it one of the best. A trial that failed counts as the worst.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

FAILED = inf
"""Score of a trial that failed before a rung."""


class Halving(NamedTuple):
    """Steps of the rungs, the lowest first, and how many times fewer trials reach each next one."""

    rungs: tuple[int, ...]
    eta: int


@dataclass(frozen=True)
class Standing:
    """A trial on its way: its scores at the rungs that it has reached, lower is better, and the rung it may run to."""

    number: int
    scores: tuple[float, ...] = ()
    target: int = 0
    is_over: bool = False
    """Whether its job has ended: it cannot go on."""

    @property
    def is_waiting(self) -> bool:
        """Whether it has reached its target, and does not go on unless it is promoted."""
        return not self.is_over and len(self.scores) > self.target


class Decision(NamedTuple):
    """Numbers of trials that were waiting at their rung."""

    promoted: list[int]
    stopped: list[int]
    """They can never be promoted."""


def halving(least: int, most: int, eta: int, trials: int) -> Halving:
    """Rungs at most / eta^k steps, none below `least`; so many that `trials` trials leave one for the last rung."""
    rungs = [most]
    while len(rungs) < _most_rungs(trials, eta) and rungs[0] / eta >= least:
        rungs.insert(0, round(most / eta ** len(rungs)))
    return Halving(tuple(rungs), eta)


def decide(trials: Sequence[Standing], rule: Halving, expected: int) -> Decision:
    """Promotions from the highest rung down, and the trials whose rank is too low for any result still to come.

    Of `expected` trials in all, the best expected / eta^k can go on from the k-th rung: more would only follow from
    early promotions of trials that later ones surpassed. The next `eta` after them are kept: one that went on may fail,
    and then leaves its place.
    """
    decision = Decision([], [])
    for rung in reversed(range(len(rule.rungs) - 1)):
        reached = sum(len(trial.scores) > rung for trial in trials)
        ranked = ranking(trials, rung)
        reachable = expected // rule.eta ** (rung + 1)
        promotable = min(reached // rule.eta, reachable)
        for place, trial in enumerate(ranked):
            if trial.target == rung and trial.is_waiting:
                if place < promotable:
                    decision.promoted.append(trial.number)
                elif place >= reachable + rule.eta:
                    decision.stopped.append(trial.number)
    return decision


def ranking(trials: Iterable[Standing], rung: int) -> list[Standing]:
    """The trials at this rung that went on without failing, or still may, the best first; of equal the earlier.

    One that ended at the rung leaves its place to the next.
    """
    reached = (trial for trial in trials if len(trial.scores) > rung and FAILED not in trial.scores[rung + 1 :])
    placed = (trial for trial in reached if not (trial.is_over and trial.target == rung))
    return sorted(placed, key=lambda trial: (trial.scores[rung], trial.number))


def _most_rungs(trials: int, eta: int) -> int:
    rungs = 1
    while trials >= eta:
        trials, rungs = trials // eta, rungs + 1
    return rungs
