"""How long policies take to decide, on one core, beside their formulas given to HiGHS whole.

`python -m benchmarks.policies` gives the table, `--policy sia --jobs 20000 --types 6` a line of it, `--json FILE` the
cells, from which `python -m benchmarks.plot` draws. Each cell is a process of its own, with a memory of its own.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from allocation.policies.plain_programs import TIME_LIMIT_S as LIMIT_S

if TYPE_CHECKING:
    from allocation.problem import Problem

ONE_CORE = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
LOADS = (0.9, 1.2, 1.5)
"""What jobs ask for, relative to the GPUs; the slowest one is told."""
PLAIN_LOAD = 1.2
REPEAT = 3
WHOLE: dict[str, dict[str, int]] = {
    "max_min_fairness": {"levels": 1},
    "finish_time_fairness": {"levels": 1},
    "makespan": {"levels": 1},
    "max_sum_throughput": {},
    "min_cost": {},
    "sia": {},
}
"""The policies whose plain program is measured, too, and with what: of levels, the first one is the formula's."""
NOT_IN_TIME = f"not in {LIMIT_S:g} s"


@dataclass(frozen=True)
class Scale:
    """So many jobs on so many GPU types."""

    jobs: int
    types: int


SCALES = (Scale(2048, 3), Scale(20_000, 6), Scale(100_000, 10))
SHARES_S, QUEUES_S = (0.15, 1.5, 15.0), (0.05, 0.3, 1.0)
TARGETS_S: dict[str, tuple[float | None, ...]] = {
    "max_min_fairness": SHARES_S,
    "max_sum_throughput": SHARES_S,
    "min_cost": SHARES_S,
    "makespan": SHARES_S,
    "finish_time_fairness": (0.5, 5.0, 40.0),
    "hierarchical_fairness": (1.0, 10.0, None),
    "sia": (0.15, 1.0, 5.0),
    "hadar": (0.5, 5.0, 30.0),
    "las": QUEUES_S,
    "qssf": QUEUES_S,
    "slearn": QUEUES_S,
    "srtf": QUEUES_S,
    "fifo": QUEUES_S,
    "isolated": QUEUES_S,
    "proportional": QUEUES_S,
}
"""Seconds at each scale; the other policies are measured at the first alone."""
WITH_DEADLINES = ((Scale(5000, 3), 5.0), (Scale(20_000, 6), None))
"""Scales of elastic jobs with deadlines that all differ, for `min_cost_slo`, and seconds."""


def main() -> None:
    arguments = _arguments()
    if arguments.inside:
        print(json.dumps(_measured(arguments)))
        return
    print("| policy | jobs | types | input | seconds | target | whole, by HiGHS | times | objective | gap | peak MiB |")
    print("| --- | ---: | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    cells = []
    for cell in _cells(arguments):
        print(_line(cell), flush=True)
        cells.append(cell)
    if arguments.json:
        arguments.json.write_text(json.dumps(cells))


def _arguments() -> argparse.Namespace:
    from allocation.policies import POLICIES
    from benchmarks.problems import DEADLINES, INPUTS, LOAD

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policy", choices=POLICIES)
    parser.add_argument("--jobs", type=int, help="with --types, another scale than the three")
    parser.add_argument("--types", type=int, default=3, help="GPU types")
    parser.add_argument("--input", choices=(*INPUTS, DEADLINES))
    parser.add_argument("--load", type=float, default=LOAD, help=argparse.SUPPRESS)
    parser.add_argument("--no-plain", action="store_true", help="without the whole programs, which take minutes")
    parser.add_argument("--json", type=Path, help="write the cells there")
    parser.add_argument("--inside", choices=("policy", "plain"), help=argparse.SUPPRESS)
    return parser.parse_args()


def _cells(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """A cell for each policy, scale and input; whole programs until one does not end."""
    from allocation.policies import POLICIES
    from benchmarks.problems import DEADLINES, INPUTS

    for policy in [arguments.policy] if arguments.policy else POLICIES:
        inputs = (*INPUTS, DEADLINES) if policy == "min_cost_slo" else INPUTS
        for kind in [arguments.input] if arguments.input else inputs:
            whole: dict[str, Any] = {}
            for scale, target_s in _scales(arguments, policy, kind):
                cell = max((_cell(policy, scale, kind, load) for load in LOADS), key=lambda cell: cell["seconds"])
                if policy in WHOLE and not arguments.no_plain and "why" not in whole:
                    whole = _cell(policy, scale, kind, PLAIN_LOAD, inside="plain")
                yield cell | {"target_s": target_s, "plain": whole}


def _scales(arguments: argparse.Namespace, policy: str, kind: str) -> list[tuple[Scale, float | None]]:
    from benchmarks.problems import DEADLINES

    if arguments.jobs:
        return [(Scale(arguments.jobs, arguments.types), None)]
    if kind == DEADLINES:
        return list(WITH_DEADLINES)
    return list(zip(SCALES, TARGETS_S[policy], strict=True)) if policy in TARGETS_S else [(SCALES[0], None)]


def _cell(policy: str, scale: Scale, kind: str, load: float, *, inside: str = "policy") -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.policies", "--inside", inside, "--policy", policy, "--input", kind]
    command += ["--jobs", str(scale.jobs), "--types", str(scale.types), "--load", str(load)]
    try:
        limit_s = 1.5 * LIMIT_S if inside == "plain" else None  # what HiGHS does before it begins knows no limit
        done = subprocess.run(
            command, check=True, capture_output=True, text=True, env=os.environ | ONE_CORE, timeout=limit_s
        )
    except subprocess.TimeoutExpired:
        return {"why": NOT_IN_TIME}
    cell: dict[str, Any] = json.loads(done.stdout)
    return cell


def _measured(arguments: argparse.Namespace) -> dict[str, Any]:
    """One cell, here."""
    from allocation.policies import PLAIN_PROGRAMS, POLICIES

    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    problem = _problem(arguments)
    cell = {"policy": arguments.policy, "jobs": arguments.jobs, "types": arguments.types, "input": arguments.input}
    cell |= {"load": arguments.load}
    if arguments.inside == "plain":
        return cell | _whole(lambda: PLAIN_PROGRAMS[arguments.policy](problem, **WHOLE[arguments.policy]).objective)
    seconds, decision = _timed(lambda: POLICIES[arguments.policy](problem))
    found = {"objective": decision.objective, "gap": decision.gap, "peak_mib": _peak_mib()}
    return cell | {"seconds": seconds} | found


def _problem(arguments: argparse.Namespace) -> "Problem":
    from benchmarks.problems import DEADLINES, elastic, elastic_with_deadlines, rigid

    if arguments.input == DEADLINES:
        return elastic_with_deadlines(arguments.jobs, types=arguments.types, load=arguments.load)
    make = elastic if arguments.policy == "sia" else rigid
    return make(arguments.jobs, kind=arguments.input, types=arguments.types, load=arguments.load)


def _whole(decide: Callable[[], float]) -> dict[str, Any]:
    """Seconds and objective of the whole program, or why there are none."""
    from allocation.solvers.linear_program import SolverFailed

    began = perf_counter()
    try:
        objective = decide()
    except SolverFailed:
        return {"why": NOT_IN_TIME}
    return {"seconds": perf_counter() - began, "objective": objective}


def _timed(decide: Callable[[], Any]) -> tuple[float, Any]:
    """The median of some; of what takes seconds, the only one."""
    seconds, answer = [], None
    for _ in range(REPEAT):
        began = perf_counter()
        answer = decide()
        seconds.append(perf_counter() - began)
        if seconds[0] > 2:
            break
    return statistics.median(seconds), answer


def _peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _line(cell: dict[str, Any]) -> str:
    whole, target_s = cell["plain"], cell["target_s"]
    told, times = whole.get("why", ""), ""
    if "seconds" in whole:
        told, times = f"{whole['seconds']:.2f} s", f"{whole['seconds'] / cell['seconds']:.0f}"
    target = "" if target_s is None else f"{target_s:g}{'' if cell['seconds'] <= target_s else ' **missed**'}"
    where = f"| `{cell['policy']}` | {cell['jobs']} | {cell['types']} | {cell['input']} "
    found = f"| {cell['objective']:.7g} | {cell['gap']:.1e} | {cell['peak_mib']:.0f} |"
    return f"{where}| {cell['seconds']:.3f} | {target} | {told} | {times} {found}"


if __name__ == "__main__":
    main()
