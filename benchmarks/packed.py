"""How long max-min fairness takes to decide where two jobs may share a GPU, beside the program with every pair.

`python -m benchmarks.packed` gives the table; `--no-plain` leaves out the whole programs, which take minutes. Each cell is
a process of its own, so that its memory is its own too.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np

from allocation.arrays import Floats, Ints
from allocation.problem import Problem
from allocation.solve import SolverFailed, maximize

WORKLOADS = 26
"""As many as Gavel's models, each with its batch sizes."""
WEIGHTS = (1, 2, 5)
LOAD = 1.2
LIMIT_S = 60.0
"""Of the whole program."""
MOST_PAIRS = 2_000_000
"""Of single jobs, over all types: a program of more is not even written down."""
ONE_CORE = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


@dataclass(frozen=True)
class Size:
    """So many single-GPU jobs on so many types, and the seconds within which they are to be decided."""

    jobs: int
    types: int
    target_s: float


SIZES = (Size(256, 3, 0.1), Size(2048, 3, 1.0), Size(20_000, 6, 5.0))


def single_gpu(jobs: int, types: int, seed: int = 0, load: float = LOAD) -> Problem:
    """Jobs of one GPU each, of 26 workloads and three weights, `load` times as many as GPUs, of all types alike.

    Made up as Gavel's table has them, which is not needed: from the first type to the last a workload is one to
    eleven times as fast, more or less by a quarter, and it uses a part of a GPU, more of a slow one. Two that use more than
    one GPU between them slow each other down to fit, and lose up to a fifth besides. One pair in five does not fit in
    memory.
    """
    rng = np.random.default_rng(seed)
    speedup = np.linspace(0, 1, types) * np.log(rng.uniform(1, 11, WORKLOADS))[:, None]
    alone = 10 ** rng.uniform(-1, 2, WORKLOADS)[:, None] * np.exp(speedup) * rng.uniform(0.8, 1.25, (WORKLOADS, types))
    workload = rng.integers(WORKLOADS, size=jobs)
    gpus = int(jobs / load)
    return Problem.of(
        alone[workload],
        np.eye(types, dtype=np.int64),
        np.full(types, gpus // types) + (np.arange(types) < gpus % types),
        weight=rng.choice(WEIGHTS, jobs),
        workload=workload,
        kept_rate=_kept_rate(rng, types),
    )


def _kept_rate(rng: np.random.Generator, types: int) -> Floats:
    """What is kept of a workload's rate (26, 26, types) beside another."""
    need = rng.uniform(0.2, 1, WORKLOADS)[:, None] * np.linspace(1, 0.6, types)
    crowded = np.maximum(need[:, None] + need[None], 1)
    lost = rng.uniform(0, 0.2, crowded.shape)
    fits = rng.random(crowded.shape) < np.sqrt(0.8)
    return (1 - lost) / crowded * (fits & fits.transpose(1, 0, 2))


def plain(problem: Problem) -> float:
    """The objective, by one program with a row for every job and a column for every pair of jobs, given to HiGHS whole."""
    from scipy.sparse import csr_array  # noqa: PLC0415  # the policy's own time is taken without it

    first, second, k = _every_pair(problem)
    i, of = (problem.rate > 0).nonzero()
    scale = problem.base_gpus / (problem.weight * problem.base_rate)
    kept, w = problem.kept_rate, problem.workload
    m, n, alone, pairs = len(w), len(problem.capacity), i.size, first.size
    rate = [problem.rate[a, c] * kept[w[a], w[b], c] * scale[a] for a, b, c in ((first, second, k), (second, first, k))]
    both = np.concatenate([i, first, second])
    columns = np.concatenate([np.arange(alone + pairs), alone + np.arange(pairs)])
    on_type = problem.usage[:, np.append(of, k)]
    j, v = on_type.nonzero()
    values = [-problem.rate[i, of] * scale[i], -rate[0], -rate[1], np.ones(m), np.ones(both.size), on_type[j, v]]
    rows = np.concatenate([both, np.arange(m), m + both, 2 * m + j])
    at = np.concatenate([columns, np.full(m, alone + pairs), columns, v])
    program = csr_array((np.concatenate(values), (rows, at)), shape=(2 * m + n, alone + pairs + 1))
    limits = np.concatenate([np.zeros(m), np.ones(m), problem.capacity])
    return maximize(np.append(np.zeros(alone + pairs), 1), program, limits, time_limit_s=LIMIT_S).value


def _every_pair(problem: Problem) -> tuple[Ints, Ints, Ints]:
    """Rows (P,) and (P,), and a configuration (P,), in which they can be together."""
    first, second = np.triu_indices(len(problem.weight), 1)
    together = problem.kept_rate[problem.workload[first], problem.workload[second]] > 0
    together &= (problem.rate[first] > 0) & (problem.rate[second] > 0)
    pair, k = together.nonzero()
    return first[pair], second[pair], k


def rows(sizes: Sequence[Size] = SIZES, *, repeat: int = 5, whole: bool = True) -> Iterator[dict[str, Any]]:
    """A cell for each size: the policy's median seconds, and those of the whole program (None: not in time)."""
    for size in sizes:
        cell = _in_its_own_process(size, repeat)
        if whole:
            cell |= {"plain": _in_its_own_process(size, repeat, "--plain")}
        yield cell


def header() -> str:
    """The first lines of the table."""
    return (
        "| jobs | types | seconds | target | whole, by HiGHS | times faster | objective | gap | pairs | peak MiB |\n"
        "| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    )


def line(cell: dict[str, Any]) -> str:
    """One more of the table."""
    whole = cell.get("plain")
    told = (
        ""
        if whole is None
        else f"{whole['seconds']:.2f} s, {whole['objective']:.7g}"
        if "seconds" in whole
        else whole["why"]
    )
    faster = f"{whole['seconds'] / cell['seconds']:.0f}" if whole and "seconds" in whole else ""
    figures = f"{cell['seconds']:.3f} | {cell['target_s']:g} | {told} | {faster} | {cell['objective']:.7g} | {cell['gap']:.1e}"
    return f"| {cell['jobs']} | {cell['types']} | {figures} | {cell['pairs']} | {cell['peak_mib']:.0f} |"


def _in_its_own_process(size: Size, repeat: int, *more: str) -> dict[str, Any]:
    command = [
        sys.executable,
        "-m",
        "benchmarks.packed",
        "--inside",
        "--jobs",
        str(size.jobs),
        "--types",
        str(size.types),
    ]
    command += ["--repeat", str(repeat), *more]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=os.environ | ONE_CORE)
    cell: dict[str, Any] = json.loads(done.stdout)
    return cell | {"jobs": size.jobs, "types": size.types, "target_s": size.target_s}


def _policy(problem: Problem, repeat: int) -> dict[str, Any]:
    from allocation.policies import POLICIES  # noqa: PLC0415  # it takes longer to load than a cell to be asked for

    seconds = []
    for _ in range(repeat):
        began = perf_counter()
        decision = POLICIES["max_min_fairness"](problem, packed=True)
        seconds.append(perf_counter() - began)
    quality = {"objective": decision.objective, "gap": decision.gap, "pairs": len(decision.pairs or ())}
    return quality | {"seconds": statistics.median(seconds), "peak_mib": _peak_mib()}


def _whole(problem: Problem) -> dict[str, Any]:
    m = len(problem.weight)
    if m * (m - 1) // 2 * len(problem.capacity) > MOST_PAIRS:
        return {"why": f"{m * (m - 1) // 2 * len(problem.capacity):,} pairs: not tried"}
    began = perf_counter()
    try:
        objective = plain(problem)
    except SolverFailed:
        return {"why": f"not in {LIMIT_S:g} s"}
    return {"seconds": perf_counter() - began, "objective": objective}


def _peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--no-plain", action="store_true", help="without the whole programs")
    for hidden in ("--jobs", "--types"):
        parser.add_argument(hidden, type=int, help=argparse.SUPPRESS)
    for hidden in ("--inside", "--plain"):
        parser.add_argument(hidden, action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.inside:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        problem = single_gpu(given.jobs, given.types)
        print(json.dumps(_whole(problem) if given.plain else _policy(problem, given.repeat)))
        return
    print(header())
    for cell in rows(repeat=given.repeat, whole=not given.no_plain):
        print(line(cell), flush=True)


if __name__ == "__main__":
    main()
