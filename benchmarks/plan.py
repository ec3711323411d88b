"""How long the plan over time takes on one core, and its gap, beside the same program given to HiGHS whole.

`python -m benchmarks.plan` gives the table, `--jobs 2000` a line of it. Jobs are elastic, in 21 configurations of three
GPU types, all different; 14 intervals from a minute to 5.7 days. Seconds are of CPU time, in a process of its own.
*By a sample* are the seconds in which `allocation.plan.costs_to_go` finds prices and costs to go of all jobs from a
plan of 200, and how far the bound of these prices is below the value of the whole plan.
"""

import argparse
import os
import subprocess
import sys
from time import process_time

ONE_CORE = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
SIZES = {200: 0.1, 2000: 1.0, 20_000: 10.0}
"""Jobs, and the seconds that are the target at a gap of 1 %."""
MOST_WHOLE = 2000
"""Jobs up to which HiGHS is asked, too."""
WHOLE_LIMIT_S = 600
TYPES, GANGS, INTERVALS, ROUND_S = 3, (1, 2, 4, 8, 16, 24, 32), 14, 60
LOAD = 1.2
"""Jobs for each GPU."""


def main() -> None:
    arguments = _arguments()
    if arguments.inside:
        print(_measured(arguments.inside, arguments.gap, whole=arguments.whole))
        return
    print("| jobs | seconds | target | gap | iterations | HiGHS, seconds | by a sample, seconds | below |")
    print("| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for jobs in [arguments.jobs] if arguments.jobs else SIZES:
        told = _inside(jobs, arguments.gap)
        whole = _inside(jobs, arguments.gap, "--whole") if jobs <= MOST_WHOLE and not arguments.no_plain else ""
        seconds, gap, iterations, sampled_s, below = told.split()
        cells = jobs, seconds, SIZES.get(jobs, ""), gap, iterations, whole, sampled_s, below
        print(f"| {' | '.join(map(str, cells))} |", flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, help="another size than the three")
    parser.add_argument("--gap", type=float, default=0.01, help="relative optimality gap")
    parser.add_argument("--no-plain", action="store_true", help="without HiGHS, which takes minutes")
    parser.add_argument("--inside", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--whole", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def _inside(jobs: int, gap: float, *words: str) -> str:
    command = [sys.executable, "-m", "benchmarks.plan", "--inside", str(jobs), "--gap", str(gap), *words]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=os.environ | ONE_CORE)
    return done.stdout.strip()


def _measured(jobs: int, gap: float, *, whole: bool) -> str:
    import numpy as np

    from allocation.plan.costs_to_go import find_costs_to_go
    from allocation.plan.plain_program import plain_program
    from allocation.plan.program import PlanProgram, doubling_intervals
    from allocation.plan.solution import solve_plan
    from allocation.solvers.linear_program import SolverFailed

    solve_plan(PlanProgram.of([[1]], [[1]], [1], [1], steps=[1]))  # what is loaded at the first call
    rng = np.random.default_rng(0)
    usage = np.kron(np.array(GANGS), np.eye(TYPES, dtype=int))
    gpus, speed = usage.sum(axis=0), np.array([1.0, 2.5, 5.0])
    of_type = speed * rng.uniform(0.6, 1.6, (jobs, TYPES))
    rate = of_type[:, usage.argmax(axis=0)] * gpus ** rng.uniform(0.6, 0.95, jobs)[:, None]
    rate[gpus > rng.choice([4, 8, 16, 32], jobs)[:, None]] = 0
    capacity = np.full(TYPES, max(32, int(jobs / LOAD / TYPES)))
    steps = rate[:, 0] * 10 ** rng.uniform(2, 5, jobs)
    ends_s = doubling_intervals(ROUND_S, ROUND_S * 2 ** (INTERVALS - 1))
    program = PlanProgram.of(rate, usage, capacity, ends_s, steps=steps)
    began = process_time()
    if whole:
        try:
            plain_program(program, time_limit_s=WHOLE_LIMIT_S)
        except SolverFailed:
            return f"not in {WHOLE_LIMIT_S}"
        return f"{process_time() - began:.1f}"
    plan = solve_plan(program, gap=gap)
    seconds = process_time() - began
    ones, began = np.ones(jobs), process_time()
    costs = find_costs_to_go(rate, usage, capacity, steps=steps, weight=ones, ends_s=ends_s)
    sampled_s, below = process_time() - began, 1 - costs.bound / plan.value
    return f"{seconds:.3f} {plan.gap:.4f} {plan.iterations} {sampled_s:.3f} {below:.4f}"


if __name__ == "__main__":
    main()
