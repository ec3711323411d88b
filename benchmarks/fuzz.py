"""Fuzz test of the structured solvers: small random problems, decided by each policy and by its plain program.

`python -m benchmarks.fuzz --problems 1000 --seed 0` prints the seed of each problem on which they differ.
Rates span many orders of magnitude, with ties and near ties in the last bits; some GPU types have no GPUs.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from inspect import signature
from time import process_time
from typing import Any

import numpy as np

from allocation.decision import Decision, Status
from allocation.policies import PLAIN_PROGRAMS, POLICIES
from allocation.policies._shared import steps_left
from allocation.policies.plain_programs import all_jobs_sum, each_jobs_sum, solve
from allocation.problem import Problem, runnable
from allocation.solvers.linear_program import SolverFailed
from allocation.time_budget import UNLIMITED
from allocation.types import Floats, Ints

SAME = 1e-6
"""Relative tolerance of objectives and of capacity."""
CLOSE = 1e-4
"""Tolerance of rates on further levels, relative to a job's fastest rate."""
GANGS = ((1, 2, 4, 8), (1, 2, 3, 5, 8), (1, 3), (2,))
ROUNDING = 2.0**-53
OPTIONS: dict[str, dict[str, float]] = {"motley": {"gap": 0.0}, "motley_static": {"gap": 0.0}, "sia": {"gap": 0.0}}
"""Parameters with which both decisions are optimal, and so comparable."""
ILL = "ill-conditioned"
LEVEL_OF: dict[str, Callable[[Problem], Floats]] = {
    "max_min_fairness": lambda p: p.rate * (p.base_gpus / (p.weight * p.base_rate))[:, None],
    "makespan": lambda p: p.rate / steps_left(p)[:, None],
}
"""Policies whose level is a scaled rate, with that rate (m, K)."""
NOT_UNIQUE = frozenset({"min_cost_slo"})
"""Policies whose optimum is not unique: several sets of met deadlines have the same sum of shortfalls."""


def main() -> None:
    arguments = _arguments()
    counts, began = Counter[str](), process_time()
    for seed in range(arguments.seed, arguments.seed + arguments.problems):
        problem = random_problem(seed)
        for name in arguments.policy or PLAIN_PROGRAMS:
            faults = list(differences(name, problem, all_levels=seed % arguments.every == 0))
            counts.update([name, *(f"{name}: {fault.split(':')[0]}" for fault in faults)])
            for fault in faults:
                print(f"seed {seed}, {name}: {fault}", flush=True)
    print(f"{arguments.problems} problems from seed {arguments.seed}, {process_time() - began:.0f} s of processor time")
    print("\n".join(f"{what}: {count}" for what, count in sorted(counts.items())))
    sys.exit(any(":" in what and ILL not in what for what in counts))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--problems", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0, help="seed of the first problem; the others follow")
    parser.add_argument(
        "--policy", choices=PLAIN_PROGRAMS, action="append", help="policy to test; may be repeated; default: all"
    )
    parser.add_argument("--every", type=int, default=10, help="compare further levels on every N-th problem")
    return parser.parse_args()


def random_problem(seed: int) -> Problem:
    """Random problem of one to eight jobs on one to four GPU types, some without GPUs."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 5))
    usage = np.kron(GANGS[rng.integers(len(GANGS))], np.eye(n, dtype=int))
    while True:
        capacity = rng.choice([0, 1, 2, 4, 8, 16], n)
        rate = _rates(rng, int(rng.integers(1, 9)), usage)
        rate = rate[runnable(rate, usage, capacity)]
        if len(rate):
            return Problem.of(rate, usage, capacity, **_columns(rng, len(rate), n))


def _rates(rng: np.random.Generator, m: int, usage: Ints) -> Floats:
    """Random rates: jobs and types differ by many orders of magnitude or not at all; some rows differ by rounding."""
    spread = rng.choice([0, 0.5, 1, 2, 5])
    jobs = np.exp(rng.normal(0, rng.choice([0, 1, 3, 8]), (m, 1)))
    types = np.exp(rng.normal(0, spread, (m if rng.random() < 0.5 else 1, len(usage))))
    rate = (jobs * types)[:, usage.argmax(axis=0)] * usage.sum(axis=0) ** rng.choice([0.8, 1.0])
    if rng.random() < 0.5:
        rate = rate * (rng.random(rate.shape) < rng.choice([0.3, 0.7, 0.9]))
    if rng.random() < 0.3:
        rate = rate[rng.integers(m, size=m)]
    if rng.random() < 0.3:
        rate = rate * (1 + rng.integers(-4, 5, rate.shape) * ROUNDING)
    return np.asarray(rate)


def _columns(rng: np.random.Generator, m: int, n: int) -> dict[str, Any]:
    return {
        "weight": 10 ** rng.uniform(-3, 3, m) if rng.random() < 0.5 else rng.choice([1.0, 2.0, 5.0], m),
        "age_s": rng.uniform(0, 1e5, m),
        "remaining_steps": np.where(rng.random(m) < 0.2, np.inf, 10 ** rng.uniform(1, 6, m)),
        "isolated_s": rng.uniform(0, 1e5, m),
        "deadline_s": np.where(rng.random(m) < 0.5, np.inf, rng.uniform(-1e3, 1e6, m)),
        "price_per_gpu_hour": rng.choice([0, 0.5, 2, 3.1], n),
        "restart_s": rng.uniform(0, 300, m),
        "team": np.arange(float(m)) % int(rng.integers(1, 4)),
    }


def differences(name: str, problem: Problem, *, all_levels: bool) -> Iterator[str]:
    """Faults of the policy's decision and differences from the plain program's, each with its kind and size."""
    options, by_level = OPTIONS.get(name, {}), "levels" in signature(PLAIN_PROGRAMS[name]).parameters
    levels = {"levels": None if all_levels else 1} if by_level else {}
    try:
        decision = POLICIES[name](problem, **options)
        plain = PLAIN_PROGRAMS[name](problem, **options, **levels)
    except SolverFailed as error:
        yield f"failed: {error}"
        return
    if decision.status == Status.FALLBACK:
        yield f"fell back: {decision.message}"
    yield from _faults(problem, decision)
    yield from _apart(name, decision, plain)
    if all_levels and name in LEVEL_OF:
        yield from _levels_apart(problem, LEVEL_OF[name](problem), decision, plain)


def _faults(problem: Problem, decision: Decision) -> Iterator[str]:
    K = problem.gpus.size
    shares = np.eye(K + 1)[decision.assignment][:, :K] if decision.shares is None else decision.shares
    over = max(shares.sum(axis=1).max() - 1, *(problem.usage @ shares.sum(axis=0) - problem.capacity))
    if over > SAME * max(1, problem.capacity.max()) or shares[problem.rate == 0].any():
        yield f"infeasible: by {over:.2g}"


def _apart(name: str, decision: Decision, plain: Decision) -> Iterator[str]:
    if name == "hadar":  # a greedy rule: at most the optimum, which is within its bound
        if not decision.objective <= plain.bound * (1 + SAME) or not plain.objective <= decision.bound * (1 + SAME):
            yield f"bound: {decision.objective!r}, {plain.objective!r}, {decision.bound!r}"
    elif abs(decision.objective - plain.objective) > SAME * abs(plain.objective) and name not in NOT_UNIQUE:
        yield f"objective: {decision.objective!r}, plain {plain.objective!r}"


def _levels_apart(problem: Problem, a: Floats, decision: Decision, plain: Decision) -> Iterator[str]:
    """Differences in rates, attributed to the decision in which a job could rise without harm to a worse-off job.

    Where a job could rise in both, or in neither, the difference is one of tolerances: HiGHS lets each row of the
    program that asks be violated by 1e-7, and a job may get that little from a type on which it is very slow.
    """
    assert decision.shares is not None
    assert plain.shares is not None
    rates = [(a * shares).sum(axis=1) for shares in (decision.shares, plain.shares)]
    off = float((np.abs(rates[0] - rates[1]) / a.max(axis=1)).max())
    if off > CLOSE:
        risen = [max(_rise(problem, a, had, i) for i in range(len(a))) for had in rates]
        by_one = {(True, False): "levels", (False, True): "levels of the plain program"}
        kind = by_one.get((risen[0] > CLOSE, risen[1] > CLOSE), ILL)
        yield f"{kind}: {off:.2g} apart; could rise by {risen[0]:.2g}, in the plain program by {risen[1]:.2g}"


def _rise(problem: Problem, a: Floats, had: Floats, i: int) -> float:
    """How far a job could rise, relative to its fastest rate, while jobs that are not better off keep their rates.

    Corrected for `SAME` of each of these jobs' fastest rates, within which rates count as equal.
    """
    fastest, m = a.max(axis=1), len(a)
    held = np.flatnonzero((had <= had[i] * (1 + SAME)) & (np.arange(m) != i))
    rates = each_jobs_sum(a)
    best = solve(
        np.ravel((np.arange(m) == i)[:, None] * a / fastest[i]),
        [[-rates[held]], [each_jobs_sum(np.ones_like(a))], [all_jobs_sum(problem.usage, m)]],
        [-had[held] * (1 - SAME / 100), np.ones(m), problem.capacity],
        usable=a > 0,
        budget=UNLIMITED,
    )
    return float(best.value - had[i] / fastest[i] - SAME * best.duals[: held.size] @ fastest[held])


if __name__ == "__main__":
    main()
