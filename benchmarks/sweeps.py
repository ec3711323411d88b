"""Rules of early termination replayed on recorded learning curves: `python -m benchmarks.sweeps`.

69 random perceptrons on the digits of scikit-learn, 81 epochs each, from `MOTLEY_REFERENCE` or `../shared/reference`.
A virtual clock, G GPUs; epochs take their recorded seconds, on g GPUs the g^0.8-th part. A restart from a checkpoint
takes as long as `--restart` mean epochs. The order of the trials is drawn for each seed. `random` trains each trial to
its end; `stop` is ASHA that stops what is not among the best 1/eta (Ray Tune's rule: it judges against those that
reported before, and the first goes on); `promote` is Motley's, which holds it and may let it go on later; `elastic`
gives the GPUs that no trial wants to the trials that run, `leaders` to those at the highest rung among them.

`--table lcdb` replays LCDB instead: up to 20 learners on each of 96 data sets, which learn anew at each rung, from
three times as much data; a restart takes no more. Its interval is over data sets.

Time is in parts of that of `random` on the same seed; regret is the least validation error so far, less the least in
the table, in points. *Within 1 %* is the time to an accuracy of 99 % of the best; the last column is its difference to
`stop`, as 95 % interval by paired bootstrap.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from csv import DictReader
from dataclasses import dataclass, field
from gzip import open as open_compressed
from math import inf
from statistics import mean
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from benchmarks.problems import reference
from sweeps.successive_halving import Halving, Standing, decide, halving

EPOCHS, ETA = 81, 3
DONE_S = 1e-12
"""Left of a trial that has reached its rung, by the last bits of floats."""
SCALING = 0.8
"""Exponent by which a trial is faster on more GPUs, as in `estimation.scaling`."""


@dataclass(frozen=True)
class Curve:
    """A recorded trial: seconds and validation error of each epoch."""

    seconds: Sequence[float]
    error: Sequence[float]


@dataclass
class Trial:
    """A trial on its way; `scores` are its errors at rungs."""

    number: int
    curve: Curve
    target: int = 0
    scores: list[float] = field(default_factory=list)
    left_s: float = 0.0
    """On one GPU, until it reaches its target."""
    is_over: bool = False

    @property
    def standing(self) -> Standing:
        return Standing(self.number, tuple(self.scores), self.target, self.is_over)


@dataclass(frozen=True)
class Replay:
    """What a rule did: the least error at each time, GPU-seconds, restarts."""

    best: Sequence[tuple[float, float]]
    gpu_s: float
    restarts: int

    @property
    def ended_s(self) -> float:
        return self.best[-1][0]

    def error_at(self, time_s: float) -> float:
        """The least validation error until then."""
        return min((error for at, error in self.best if at <= time_s), default=inf)

    def time_to(self, error: float) -> float:
        return next((at for at, found in self.best if found <= error), inf)


Rule = Callable[[Sequence[Trial], Trial, Halving, int], tuple[bool, list[int], list[int]]]
"""From all trials so far, the one that has reached its rung, the rungs and how many trials there will be: whether it
goes on, whom to release, whom to stop."""


def to_the_end(
    trials: Sequence[Trial], trial: Trial, rule: Halving, expected: int
) -> tuple[bool, list[int], list[int]]:
    """Train each trial to its end."""
    return True, [], []


def stop(trials: Sequence[Trial], trial: Trial, rule: Halving, expected: int) -> tuple[bool, list[int], list[int]]:
    """ASHA as Ray Tune has it: one that is worse than the best 1/eta of those before it at the rung is stopped."""
    rung = len(trial.scores) - 1
    before = [one.scores[rung] for one in trials if one is not trial and len(one.scores) > rung]
    goes_on = not before or trial.scores[rung] <= float(np.percentile(before, 100 / rule.eta))
    return goes_on, [], [] if goes_on else [trial.number]


def promote(trials: Sequence[Trial], trial: Trial, rule: Halving, expected: int) -> tuple[bool, list[int], list[int]]:
    """Motley's: it is held unless it is among the best 1/eta, and promoted once it is."""
    promoted, stopped = decide([one.standing for one in trials], rule, expected)
    return trial.number in promoted, [n for n in promoted if n != trial.number], stopped


@dataclass
class Cluster:
    """Some GPUs on which the trials run in this order, by a rule; time is virtual."""

    curves: Sequence[Curve]
    rule: Rule
    rungs: Halving
    gpus: int
    widths: str
    restart_s: float
    trials: list[Trial] = field(default_factory=list)
    running: list[Trial] = field(default_factory=list)
    promoted: list[Trial] = field(default_factory=list)
    """They wait for a place, and then restart from their checkpoint."""
    now: float = 0.0
    gpu_s: float = 0.0
    restarts: int = 0
    best: list[tuple[float, float]] = field(default_factory=lambda: [(0.0, inf)])

    def run(self) -> Replay:
        """Simulate until no trial runs and none will come."""
        self._fill()
        while self.running:
            self._train()
            for trial in [one for one in self.running if one.left_s <= DONE_S]:
                self._reach(trial)
            self._fill()
        return Replay(self.best, self.gpu_s, self.restarts)

    def _fill(self) -> None:
        """A place that is free goes to a promoted trial first, else to a new one."""
        while len(self.running) < self.gpus and (self.promoted or len(self.trials) < len(self.curves)):
            if self.promoted:
                self.restarts += 1
                self._begin(self.promoted[0], self.restart_s)
                self.running.append(self.promoted.pop(0))
            else:
                self.trials.append(Trial(len(self.trials), self.curves[len(self.trials)]))
                self._begin(self.trials[-1], 0.0)
                self.running.append(self.trials[-1])

    def _begin(self, trial: Trial, restart_s: float) -> None:
        first = self.rungs.rungs[len(trial.scores) - 1] if trial.scores else 0
        trial.left_s = restart_s + sum(trial.curve.seconds[first : self.rungs.rungs[trial.target]])

    def _train(self) -> None:
        """Until the next trial reaches its rung."""
        widths = _widths([trial.target for trial in self.running], self.gpus, self.widths)
        pairs = list(zip(self.running, widths, strict=True))
        step_s = min(one.left_s / width**SCALING for one, width in pairs)
        self.now, self.gpu_s = self.now + step_s, self.gpu_s + step_s * sum(widths)
        for one, width in pairs:
            one.left_s -= step_s * width**SCALING

    def _reach(self, trial: Trial) -> None:
        """It goes on, or leaves its place; others may be released or stopped by its result."""
        epoch = self.rungs.rungs[trial.target]
        trial.scores.append(trial.curve.error[epoch - 1])
        self.best.append((self.now, min(self.best[-1][1], *trial.curve.error[:epoch])))
        if trial.target == len(self.rungs.rungs) - 1:
            self.running.remove(trial)
            trial.is_over = True
            return
        goes_on, released, stopped = self.rule(self.trials, trial, self.rungs, len(self.curves))
        if goes_on:
            trial.target += 1
            self._begin(trial, 0.0)
        else:
            self.running.remove(trial)
        for number in stopped:
            self.trials[number].is_over = True
        for number in released:
            self.trials[number].target += 1
            self.promoted.append(self.trials[number])


def _widths(targets: Sequence[int], gpus: int, widths: str) -> list[int]:
    """GPUs of each running trial, of which these are the rungs."""
    if widths == FIXED:
        return [1] * len(targets)
    shared = [place for place, target in enumerate(targets) if widths == EVEN or target == max(targets)]
    least, more = divmod(gpus - len(targets), len(shared))
    extra = {place: least + (n < more) for n, place in enumerate(shared)}
    return [1 + extra.get(place, 0) for place in range(len(targets))]


FIXED, EVEN, LEADERS = "fixed", "even", "leaders"
Rules = Mapping[str, tuple[Rule, bool, str]]
RULES: Rules = {
    "random": (to_the_end, False, FIXED),
    "random, elastic": (to_the_end, False, EVEN),
    "stop": (stop, True, FIXED),
    "stop, elastic": (stop, True, EVEN),
    "promote": (promote, True, FIXED),
    "promote, elastic": (promote, True, EVEN),
    "promote, leaders": (promote, True, LEADERS),
}
"""Name → its rule, whether it has rungs, and which trials grow onto GPUs that no trial wants."""


def read_curves() -> list[Curve]:
    """The recorded trials."""
    seconds: dict[str, list[float]] = {}
    error: dict[str, list[float]] = {}
    with open_compressed(reference() / "sweeps" / "digits_epochs.csv.gz", "rt") as file:
        for row in DictReader(file):
            seconds.setdefault(row["trial"], []).append(float(row["seconds"]))
            error.setdefault(row["trial"], []).append(1 - float(row["valid_accuracy"]))
    return [Curve(seconds[trial], error[trial]) for trial in seconds]


@dataclass(frozen=True)
class Table:
    """A recorded search: its trials at rungs, and the same trained at once."""

    curves: Sequence[Curve]
    rungs: Halving
    whole: Sequence[Curve]
    at_once: Halving
    restart_s: float = 0.0

    @property
    def least(self) -> float:
        """The least error of any trial."""
        return min(min(curve.error) for curve in (*self.curves, *self.whole))


def of_digits(curves: Sequence[Curve], restart_epochs: float) -> Table:
    restart_s = restart_epochs * mean(second for curve in curves for second in curve.seconds)
    return Table(curves, halving(1, EPOCHS, ETA, len(curves)), curves, Halving((EPOCHS,), ETA), restart_s)


def read_lcdb() -> list[Table]:
    """A table for each data set of LCDB: learners, which have more of the data at each rung, and learn it anew.

    Of its learners those that were recorded at each size. Sizes are those nearest to the greatest, a third of it, ...
    """
    found: dict[str, dict[str, dict[int, tuple[float, float]]]] = {}
    with open_compressed(reference() / "sweeps" / "lcdb_small.csv.gz", "rt") as file:
        for row in DictReader(file):
            at_sizes = found.setdefault(row["openmlid"], {}).setdefault(row["learner"], {})
            at_sizes[int(row["size_train"])] = float(row["train_s"]), 1 - float(row["valid"])
    return [of_data_set(list(learners.values())) for learners in found.values()]


def of_data_set(learners: Sequence[Mapping[int, tuple[float, float]]]) -> Table:
    known = sorted({size for learner in learners for size in learner})
    rungs = halving(min(known), max(known), ETA, len(learners)).rungs
    sizes = [min(known, key=lambda size, rung=rung: abs(size - rung)) for rung in rungs]  # type: ignore[misc]
    whole = [learner for learner in learners if set(sizes) <= learner.keys()]
    curves = [Curve(*zip(*(learner[size] for size in sizes), strict=True)) for learner in whole]
    at_once = [Curve(curve.seconds[-1:], curve.error[-1:]) for curve in curves]
    return Table(curves, Halving(tuple(range(1, len(sizes) + 1)), ETA), at_once, Halving((1,), ETA))


def replays(table: Table, seed: int, gpus: int, peers: Rules = MappingProxyType({})) -> dict[str, Replay]:
    """Each rule on the trials in the order of this seed."""
    order = np.random.default_rng(seed).permutation(len(table.curves))
    at_rungs, whole = ([curves[n] for n in order] for curves in (table.curves, table.whole))
    return {
        name: Cluster(
            at_rungs if has_rungs else whole,
            rule,
            table.rungs if has_rungs else table.at_once,
            gpus,
            widths,
            table.restart_s,
        ).run()
        for name, (rule, has_rungs, widths) in {**RULES, **peers}.items()
    }


def interval(differences: Sequence[float]) -> tuple[float, float]:
    """95 % interval of the mean by bootstrap."""
    draws = np.random.default_rng(0).choice(differences, (10_000, len(differences))).mean(axis=1)
    low, high = np.percentile(draws, (2.5, 97.5))
    return float(low), float(high)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--gpus", type=int, default=4)
    parser.add_argument("--restart", type=float, default=2.0, help="mean epochs that a restart takes")
    parser.add_argument("--peers", action="store_true", help="also the classes of Ray Tune and Syne Tune")
    parser.add_argument("--table", choices=("digits", "lcdb"), default="digits")
    options = parser.parse_args()
    tables = read_lcdb() if options.table == "lcdb" else [of_digits(read_curves(), options.restart)]
    peers = _peers if options.peers else dict
    runs = [
        Run(replays(table, seed, options.gpus, peers()), table.least, number if len(tables) > 1 else seed)
        for number, table in enumerate(tables)
        for seed in range(options.seeds)
    ]
    print("| rule | ends at | within 1 % at | GPU time | restarts | regret at 10 % | 25 % | 50 % | against stop |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |")
    for name in runs[0].by_rule:
        print(_row(name, runs))


def _peers() -> Rules:
    from benchmarks.sweep_peers import peer_rules  # which are installed for this alone

    return peer_rules()


class Run(NamedTuple):
    """All rules on one order of one table; runs of a group count as one in the bootstrap."""

    by_rule: Mapping[str, Replay]
    least: float
    group: int

    def near(self, name: str) -> float:
        """When it first had 99 % of the best accuracy, in parts of the time of `random`; 1 if it never had."""
        whole_s = self.by_rule["random"].ended_s
        return min(self.by_rule[name].time_to(1 - 0.99 * (1 - self.least)), whole_s) / whole_s

    def regret(self, name: str, part: float) -> float:
        """In points, after this part of the time of `random`."""
        error = self.by_rule[name].error_at(part * self.by_rule["random"].ended_s)
        return 100 * (min(error, 1) - self.least)


def _row(name: str, runs: Sequence[Run]) -> str:
    pairs = [(run.by_rule[name], run.by_rule["random"]) for run in runs]
    low, high = interval(_of_groups(runs, name))
    cells = (
        mean(one.ended_s / whole.ended_s for one, whole in pairs),
        mean(run.near(name) for run in runs),
        mean(one.gpu_s / whole.gpu_s for one, whole in pairs),
    )
    regrets = [mean(run.regret(name, part) for run in runs) for part in (0.1, 0.25, 0.5)]
    restarts = mean(one.restarts for one, _ in pairs)
    texts = [f"{cell:.3f}" for cell in cells] + [f"{restarts:.1f}"] + [f"{regret:.2f}" for regret in regrets]
    return f"| {name} | {' | '.join(texts)} | {low:+.3f} to {high:+.3f} |"


def _of_groups(runs: Sequence[Run], name: str) -> list[float]:
    """How much later than `stop` it was near the best, on average in each group."""
    later: dict[int, list[float]] = {}
    for run in runs:
        later.setdefault(run.group, []).append(run.near(name) - run.near("stop"))
    return [mean(of_group) for of_group in later.values()]


if __name__ == "__main__":
    main()
