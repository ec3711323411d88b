"""How many passes over the jobs the prices take from nothing, and from those of the round before.

`python -m benchmarks.warm_start`: of the jobs, all different, a part is replaced from one round to the next. Each pass
is an answer of all jobs to some prices, a cut. From the round before there are its best prices alone, or those of all
the answers that made up its result.
"""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from allocation.policies.sia import sia
from allocation.problem import Problem
from allocation.solvers.lagrangian_dual import CuttingPlanes, SeparableProblem
from allocation.solvers.max_min_level import TOLERANCE, dearest, proven
from allocation.solvers.pricing_oracle import PricingOracle, UnitMix
from allocation.solvers.water_filling import each_alone
from allocation.types import Floats
from benchmarks.problems import elastic, rigid

GAP, MOST_PASSES = 1e-6, 400


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
    ones = np.ones(len(value), dtype=np.int64)
    search = CuttingPlanes(SeparableProblem(value, problem.usage, problem.capacity.astype(float), ones))
    queue, at = list(starts), list[Floats]()
    for _ in range(MOST_PASSES):
        at.append(queue.pop(0) if queue else steady * search.best + (1 - steady) * search.suggested)
        search.ask(at[-1])
        if search.is_within(GAP):
            break
    return Found(len(at), search.best, _with_part(at, search.mix[1:]))


def prices_of_level(problem: Problem, starts: Sequence[Floats], steady: float) -> Found:
    """The prices that prove the lowest bound on the level of all, by cutting planes."""
    a = problem.rate * (problem.base_gpus / (problem.weight * problem.base_rate))[:, None]
    oracle = PricingOracle.of(a, problem.usage / problem.capacity[:, None], np.ones(len(a), dtype=np.int64))
    n, level, need = len(problem.capacity), float(oracle.most.max()), each_alone(lambda z: z)(oracle.most)
    queue, at, mixes, suggested = list(starts), list[Floats](), list[UnitMix](), np.full(n, 1 / n)
    best = suggested
    for _ in range(MOST_PASSES):
        at.append(queue.pop(0) if queue else steady * best + (1 - steady) * suggested)
        before = level
        level, priced = proven(oracle.cheapest(at[-1], need(level)), need, 0, level)
        best = at[-1] if level < before else best
        mixes.append(priced.mix())
        suggested, parts, overuse = dearest(np.array([mix.use_at(need(level)) for mix in mixes]))
        if overuse <= 1 + TOLERANCE:
            break
    return Found(len(at), best, _with_part(at, parts))


def _with_part(at: Sequence[Floats], parts: Floats) -> tuple[Floats, ...]:
    return tuple(prices for prices, part in zip(at, parts, strict=True) if part > 0)


def _of_sia(problem: Problem, starts: Sequence[Floats], steady: float) -> Found:
    worth = sia(problem).value
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
