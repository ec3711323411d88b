"""How many passes over the jobs the prices take from nothing, and from those of the round before.

`python -m benchmarks.warm_start`: of the jobs, all different, a part is replaced from one round to the next. Each pass
is an answer of all jobs to some prices, a cut. From the round before there are its best prices alone, or those of all
the answers that made up its result.
"""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq

from allocation.arrays import Floats, Ints
from allocation.policies.sia import sia
from allocation.prices import Market
from allocation.problem import Problem
from allocation.solve import maximize
from benchmarks.problems import elastic, rigid

GAP, TOLERANCE, MOST_PASSES = 1e-6, 1e-8, 400


@dataclass(frozen=True)
class Found:
    """After so many passes: the best prices, and those of the answers that are in the result."""

    passes: int
    best: Floats
    mixed: tuple[Floats, ...]


Solve = Callable[[Problem, Sequence[Floats], float], Found]
STEADY = "how far the next prices are drawn back to the best so far; 0: plain cutting planes"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--changed", type=float, default=0.02, help="the part of the jobs that is replaced")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--types", type=int, nargs="+", default=(3, 6, 12))
    parser.add_argument("--steady", type=float, nargs="+", default=(0.0, 0.7), help=STEADY)
    arguments = parser.parse_args()
    print("| prices of | types | drawn back | from nothing | from the last prices | from the last answers' prices |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for name, (make, solve) in CASES.items():
        for types in arguments.types:
            rounds = _rounds(make, arguments.jobs, types, arguments.changed, arguments.rounds)
            for steady in arguments.steady:
                print(f"| {name} | {types} | {steady:g} | {_passes(solve, rounds, steady)} |", flush=True)


def _rounds(make: Callable[..., Problem], jobs: int, types: int, changed: float, rounds: int) -> list[Problem]:
    """One after the other, each with some of the jobs of the one before replaced by others."""
    first, fresh = (make(jobs, kind="all-different", types=types, load=2, seed=seed) for seed in (0, 1))
    rng, rate, found = np.random.default_rng(0), first.rate.copy(), list[Problem]()
    for _ in range(rounds + 1):
        found.append(Problem.of(rate, first.usage, first.capacity, weight=first.weight))
        rows = rng.choice(jobs, int(jobs * changed), replace=False)
        rate = rate.copy()
        rate[rows] = fresh.rate[rng.permutation(rows)]
    return found


def _passes(solve: Solve, rounds: Sequence[Problem], steady: float) -> str:
    """Means over the rounds but the first."""
    cold, last, mixed = list[int](), list[int](), list[int]()
    before = solve(rounds[0], [], steady)
    for problem in rounds[1:]:
        now = solve(problem, [], steady)
        cold.append(now.passes)
        last.append(solve(problem, [before.best], steady).passes)
        mixed.append(solve(problem, [before.best, *before.mixed], steady).passes)
        before = now
    return " | ".join(f"{np.mean(passes):.1f}" for passes in (cold, last, mixed))


def prices_of_worth(value: Floats, problem: Problem, starts: Sequence[Floats], steady: float) -> Found:
    """The prices at which what jobs want is worth least together, by cutting planes."""
    market = Market(value, problem.usage, problem.capacity.astype(float), np.ones(len(value), dtype=np.int64))
    n, bound = len(market.capacity), np.inf
    queue, at, best = list(starts), list[Floats](), np.zeros(n)
    offers, slopes, following = [0.0], [market.capacity], np.zeros(n)
    for _ in range(MOST_PASSES):
        at.append(queue.pop(0) if queue else steady * best + (1 - steady) * following)
        answer = market.best_at(at[-1])
        offers.append(market.worth(answer))
        slopes.append(market.capacity - market.used(answer))
        here = offers[-1] + float(at[-1] @ slopes[-1])
        bound, best = (here, at[-1]) if here < bound else (bound, best)
        following, floor, mix = _lowest(np.array(offers), np.array(slopes))
        if bound - floor <= GAP * abs(bound):
            break
    return Found(len(at), best, tuple(prices for prices, part in zip(at, mix[1:], strict=True) if part > 0))


def _lowest(offers: Floats, slopes: Floats) -> tuple[Floats, float, Floats]:
    unit, n = max(abs(offers).max(), 1e-300), slopes.shape[1]
    rows = np.vstack([-slopes.T, np.ones(len(slopes))])
    found = maximize(offers / unit, rows, np.append(np.zeros(n), 1), tolerance=1e-10)
    return unit * found.duals[:n], unit * found.value, found.x


def prices_of_level(problem: Problem, starts: Sequence[Floats], steady: float) -> Found:
    """The prices that prove the lowest bound on the level of all, by cutting planes."""
    a = problem.rate * (problem.base_gpus / (problem.weight * problem.base_rate))[:, None]
    use, n = problem.usage / problem.capacity[:, None], len(problem.capacity)
    level, most = float(a.max(axis=1).max()), a.max(axis=1)
    queue, at, hulls, following = list(starts), list[Floats](), list[Hull](), np.full(n, 1 / n)
    best = following
    for _ in range(MOST_PASSES):
        at.append(queue.pop(0) if queue else steady * best + (1 - steady) * following)
        hull = Hull.at(a, use, at[-1])
        hulls.append(hull)
        if hull.expense(level, most) > 1:
            level, best = float(brentq(lambda z, h=hull: h.expense(z, most) - 1, 0, level, rtol=1e-14)), at[-1]
        following, mix, overuse = _dearest(np.array([hull.use_at(use, level, most) for hull in hulls]))
        if overuse <= 1 + TOLERANCE:
            break
    return Found(len(at), best, tuple(prices for prices, part in zip(at, mix, strict=True) if part > 0))


def _dearest(uses: Floats) -> tuple[Floats, Floats, float]:
    S, n = uses.shape
    rows = np.block([[-uses, np.ones((S, 1))], [np.ones((1, n)), np.zeros((1, 1))]])
    found = maximize(np.append(np.zeros(n), 1), rows, np.append(np.zeros(S), 1), tolerance=1e-10)
    return found.x[:-1], found.duals[:-1], found.value


@dataclass(frozen=True)
class Hull:
    """Each job's cheapest ways to more: corners (m, H) of (idle, configurations) with their rates and costs."""

    corners: Ints
    rates: Floats
    costs: Floats

    @classmethod
    def at(cls, rate: Floats, use: Floats, prices: Floats) -> "Hull":
        rates = np.column_stack([np.zeros(len(rate)), rate])
        costs = np.concatenate([[0.0], prices @ use])
        everyone, at = np.arange(len(rates)), np.zeros(len(rates), dtype=np.int64)
        corners = [at]
        while True:
            gain, dearer = rates - rates[everyone, at][:, None], costs - costs[at][:, None]
            slope = np.divide(dearer, gain, out=np.full_like(gain, np.inf), where=gain > 0)
            best = slope.argmin(axis=1)
            ahead = np.isfinite(slope[everyone, best])
            if not ahead.any():
                every = np.array(corners).T
                return cls(every, np.take_along_axis(rates, every, axis=1), costs[every])
            at = np.where(ahead, best, at)
            corners.append(at)

    def _steps(self, level: float, most: Floats) -> tuple[Floats, Floats]:
        """How much of each step between corners (m, H - 1) is taken, and the steps' widths."""
        width = np.diff(self.rates, axis=1)
        return np.clip(np.minimum(level, most)[:, None] - self.rates[:, :-1], 0, width), width

    def expense(self, level: float, most: Floats) -> float:
        taken, width = self._steps(level, most)
        rise = np.diff(self.costs, axis=1)
        return float((taken * np.divide(rise, width, out=np.zeros_like(rise), where=width > 0)).sum())

    def use_at(self, use: Floats, level: float, most: Floats) -> Floats:
        taken, width = self._steps(level, most)
        part = np.divide(taken, width, out=np.zeros_like(taken), where=width > 0)
        idle = np.column_stack([np.zeros(len(use)), use])
        steps = np.diff(idle[:, self.corners], axis=2)
        used: Floats = (steps * part).sum(axis=(1, 2))
        return used


def _of_sia(problem: Problem, starts: Sequence[Floats], steady: float) -> Found:
    worth = sia(problem).worth
    assert worth is not None
    return prices_of_worth(worth, problem, starts, steady)


def _of_throughput(problem: Problem, starts: Sequence[Floats], steady: float) -> Found:
    return prices_of_worth(problem.weight[:, None] * problem.rate, problem, starts, steady)


CASES: dict[str, tuple[Callable[..., Problem], Solve]] = {
    "`sia`": (elastic, _of_sia),
    "`max_sum_throughput`": (rigid, _of_throughput),
    "`max_min_fairness`, the first level": (rigid, prices_of_level),
}


if __name__ == "__main__":
    main()
