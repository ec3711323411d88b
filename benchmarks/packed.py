"""How long max-min fairness takes to decide where two jobs may share a GPU, beside the program with every pair.

`python -m benchmarks.packed` gives the table; `--no-plain` leaves out the whole programs, which take minutes. Each cell
is a process of its own, so that its memory is its own too.
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
from itertools import product
from time import perf_counter
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from allocation.policies.max_min_fairness import max_min_fairness
from allocation.problem import Problem, SpaceSharing, sharing_of
from allocation.solvers.linear_program import SolverFailed, divert_native_output, maximize
from allocation.types import Floats, Ints
from benchmarks.problems import TYPES, reference

WORKLOADS = 26
"""As many as Gavel's models, each with its batch sizes."""
WEIGHTS = (1, 2, 5)
PUBLISHED, MADE_UP = RATES = ("published", "made-up")
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


def single_gpu(jobs: int, types: int, seed: int = 0, load: float = LOAD, *, rates: str = PUBLISHED) -> Problem:
    """Jobs of one GPU each, of 26 workloads and three weights, `load` times as many as GPUs, of all types alike.

    Published are the rates of Gavel's table (`benchmarks.problems`), alone and together; what a further type does is
    like one of its three, faster or slower alike for two together. Made-up rates need no table: from the first type to
    the last a workload is one to eleven times as fast, more or less by a quarter, and it uses a part of a GPU, more of
    a slow one. Two that use more than one GPU between them slow each other down to fit, and lose up to a fifth besides.
    A pair in five does not fit in memory.
    """
    rng = np.random.default_rng(seed)
    alone, kept = _published(rng, types) if rates == PUBLISHED else _made_up(rng, types)
    workload, gpus = rng.integers(len(alone), size=jobs), int(jobs / load)
    return Problem.of(
        alone[workload],
        np.eye(types, dtype=np.int64),
        np.full(types, gpus // types) + (np.arange(types) < gpus % types),
        weight=rng.choice(WEIGHTS, jobs),
        sharing=SpaceSharing.of(workload, kept, types=types),
    )


def _published(rng: np.random.Generator, types: int) -> tuple[Floats, Floats]:
    """Steps/s (26, types), and what is kept of them (26, 26, types) beside another."""
    tables = json.loads((reference() / "gavel" / "simulation_throughputs.json").read_text())
    keys = [key for key in tables[TYPES[0]] if key.endswith(", 1)")]
    alone = np.array([[tables[gpu_type][key]["null"] for gpu_type in TYPES] for key in keys])
    pairs = [[[tables[gpu_type][key].get(other, (0, 0)) for gpu_type in TYPES] for other in keys] for key in keys]
    beside = np.array(pairs, dtype=float)
    kept = np.minimum(beside[..., 0] / alone[:, None], 1) * (beside > 0).all(axis=-1)
    like, more = rng.integers(len(TYPES), size=types - len(TYPES)), (len(alone), types - len(TYPES))
    further = alone[:, like] * rng.uniform(0.5, 3, more[1]) * rng.uniform(0.8, 1.25, more)
    return np.hstack([alone, further]), np.concatenate([kept, kept[:, :, like]], axis=2)


def _made_up(rng: np.random.Generator, types: int) -> tuple[Floats, Floats]:
    """The same by chance."""
    speedup = np.linspace(0, 1, types) * np.log(rng.uniform(1, 11, WORKLOADS))[:, None]
    alone = 10 ** rng.uniform(-1, 2, WORKLOADS)[:, None] * np.exp(speedup) * rng.uniform(0.8, 1.25, (WORKLOADS, types))
    return alone, _kept_rate(rng, types)


def _kept_rate(rng: np.random.Generator, types: int) -> Floats:
    """What is kept of a workload's rate (26, 26, types) beside another."""
    need = rng.uniform(0.2, 1, WORKLOADS)[:, None] * np.linspace(1, 0.6, types)
    crowded = np.maximum(need[:, None] + need[None], 1)
    lost = rng.uniform(0, 0.2, crowded.shape)
    fits = rng.random(crowded.shape) < np.sqrt(0.8)
    kept: Floats = (1 - lost) / crowded * (fits & fits.transpose(1, 0, 2))
    return kept


def plain(problem: Problem) -> float:
    """The objective, by one program with rows for every job and a column for every pair of jobs."""
    first, second, k = _every_pair(problem)
    i, of = (problem.rate > 0).nonzero()
    scale = problem.base_gpus / (problem.weight * problem.base_rate)
    sharing = sharing_of(problem)
    kept, w = sharing.kept_rate, sharing.workload
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
    sharing = sharing_of(problem)
    together = sharing.kept_rate[sharing.workload[first], sharing.workload[second]] > 0
    together &= (problem.rate[first] > 0) & (problem.rate[second] > 0)
    pair, k = together.nonzero()
    return first[pair], second[pair], k


def rows(sizes: Sequence[Size] = SIZES, *, repeat: int = 5, whole: bool = True) -> Iterator[dict[str, Any]]:
    """A cell for each size and input: the policy's median seconds, and those of the whole program, or why not."""
    for size, rates in product(sizes, RATES):
        cell = _in_its_own_process(size, rates, repeat)
        if whole:
            cell |= {"plain": _in_its_own_process(size, rates, repeat, "--plain")}
        yield cell


def header() -> str:
    """The first lines of the table."""
    return (
        "| jobs | types | rates | seconds | target | whole, by HiGHS | times | objective | gap | pairs | peak MiB |\n"
        "| ---: | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    )


def line(cell: dict[str, Any]) -> str:
    """One more of the table."""
    whole = cell.get("plain", {})
    told, faster = whole.get("why", ""), ""
    if "seconds" in whole:
        told, faster = (
            f"{whole['seconds']:.2f} s, {whole['objective']:.7g}",
            f"{whole['seconds'] / cell['seconds']:.0f}",
        )
    reached = f"{cell['objective']:.7g} | {cell['gap']:.1e}"
    figures = f"{cell['seconds']:.3f} | {cell['target_s']:g} | {told} | {faster} | {reached}"
    return (
        f"| {cell['jobs']} | {cell['types']} | {cell['rates']} | {figures} | {cell['pairs']} | {cell['peak_mib']:.0f} |"
    )


def _in_its_own_process(size: Size, rates: str, repeat: int, *more: str) -> dict[str, Any]:
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
    command += ["--rates", rates, "--repeat", str(repeat), *more]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=os.environ | ONE_CORE)
    cell: dict[str, Any] = json.loads(done.stdout)
    return cell | {"jobs": size.jobs, "types": size.types, "target_s": size.target_s, "rates": rates}


def _policy(problem: Problem, repeat: int) -> dict[str, Any]:
    seconds = []
    for _ in range(repeat):
        began = perf_counter()
        decision = max_min_fairness(problem, packed=True)
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
    divert_native_output(sys.stderr.fileno())
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--no-plain", action="store_true", help="without the whole programs")
    for hidden in ("--jobs", "--types"):
        parser.add_argument(hidden, type=int, help=argparse.SUPPRESS)
    parser.add_argument("--rates", choices=RATES, default=PUBLISHED, help=argparse.SUPPRESS)
    for hidden in ("--inside", "--plain"):
        parser.add_argument(hidden, action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.inside:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        problem = single_gpu(given.jobs, given.types, rates=given.rates)
        print(json.dumps(_whole(problem) if given.plain else _policy(problem, given.repeat)))
        return
    print(header())
    for cell in rows(repeat=given.repeat, whole=not given.no_plain):
        print(line(cell), flush=True)


if __name__ == "__main__":
    main()
