"""How long policies take to decide, on one core, beside their formulas given to HiGHS whole.

`python -m benchmarks.policies` gives the table, `--policy sia --jobs 2048 --json` one cell, `--types 6` more GPU types.
Each cell is a process of its own, so that its memory is its own too.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
from collections.abc import Callable
from time import perf_counter
from typing import Any

ONE_CORE = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
TARGET_S = {"sia": 0.5, "hadar": 0.5, "finish_time_fairness": 1.0, "hierarchical_fairness": 1.0}
"""Of 2,048 jobs and three types."""
SHARES_TARGET_S = 0.3
QUEUES = ("allox", "srtf", "las", "fifo", "fifo_fastest")
"""They are only told."""


def main() -> None:
    arguments = _arguments()
    if arguments.policy and (arguments.json or arguments.inside):
        print(json.dumps(_measured(arguments) if arguments.inside else _in_its_own_process(arguments)))
        return
    _print_table(arguments)


def _arguments() -> argparse.Namespace:
    from allocation.policies import POLICIES
    from benchmarks.problems import INPUTS

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policy", choices=POLICIES)
    parser.add_argument("--jobs", type=int, default=2048)
    parser.add_argument("--types", type=int, default=3, help="GPU types, of rigid jobs")
    parser.add_argument("--input", choices=INPUTS, default="all-different")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--plain", action="store_true", help="the formula given to HiGHS whole, in place of the policy")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def _measured(arguments: argparse.Namespace) -> dict[str, Any]:
    """One cell, here."""
    from allocation.policies import POLICIES
    from benchmarks.formulations import PLAIN
    from benchmarks.problems import elastic, rigid

    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    if arguments.policy == "sia":
        problem = elastic(arguments.jobs, kind=arguments.input)
    else:
        problem = rigid(arguments.jobs, kind=arguments.input, types=arguments.types)
    cell = {"policy": arguments.policy, "jobs": arguments.jobs, "input": arguments.input}
    if arguments.plain:
        seconds, objective = _timed(lambda: PLAIN[arguments.policy](problem), 1)
        return cell | {"median_seconds": seconds, "objective": objective, "peak_mib": _peak_mib()}
    seconds, decision = _timed(lambda: POLICIES[arguments.policy](problem), arguments.repeat)
    quality = {"objective": decision.objective, "bound": decision.bound, "gap": decision.gap}
    return cell | {"median_seconds": seconds} | quality | {"peak_mib": _peak_mib()}


def _timed(decide: Callable[[], Any], repeat: int) -> tuple[float, Any]:
    seconds, answer = [], None
    for _ in range(repeat):
        began = perf_counter()
        answer = decide()
        seconds.append(perf_counter() - began)
    return statistics.median(seconds), answer


def _peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _in_its_own_process(arguments: argparse.Namespace, **instead: Any) -> dict[str, Any]:
    asked = vars(arguments) | instead
    command = [sys.executable, "-m", "benchmarks.policies", "--inside", "--policy", asked["policy"]]
    command += ["--jobs", str(asked["jobs"]), "--input", asked["input"], "--repeat", str(asked["repeat"])]
    command += ["--types", str(asked["types"])]
    command += ["--plain"] if asked["plain"] else []
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=os.environ | ONE_CORE)
    cell: dict[str, Any] = json.loads(done.stdout)
    return cell


def _print_table(arguments: argparse.Namespace) -> None:
    from allocation.policies import POLICIES
    from benchmarks.formulations import PLAIN
    from benchmarks.problems import INPUTS

    print("| policy | jobs | input | seconds | target | whole, by HiGHS | objective | gap | peak MiB |")
    print("| --- | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for policy in [arguments.policy] if arguments.policy else POLICIES:
        for kind in INPUTS:
            cell = _in_its_own_process(arguments, policy=policy, input=kind, plain=False)
            whole = _in_its_own_process(arguments, policy=policy, input=kind, plain=True) if policy in PLAIN else None
            untold = policy in QUEUES or (arguments.jobs, arguments.types) != (2048, 3)
            target = "" if untold else TARGET_S.get(policy, SHARES_TARGET_S)
            beside = f"{whole['median_seconds']:.2f} s, {whole['objective']:.7g}" if whole else ""
            figures = (
                f"{cell['median_seconds']:.3f} | {target} | {beside} | {cell['objective']:.7g} | {cell['gap']:.1e}"
            )
            print(f"| `{policy}` | {cell['jobs']} | {kind} | {figures} | {cell['peak_mib']:.0f} |", flush=True)


if __name__ == "__main__":
    main()
