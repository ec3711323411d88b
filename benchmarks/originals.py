"""The simulator by Gavel's and by Sia's rules beside their own results: `python -m benchmarks.originals`.

`--only gavel`, `packed`, `sia` or `hadar` for one table; of Hadar there is nothing to compare with, and its table is of
our policies. Traces, and the results of the originals (`expected.json`), are in
`MOTLEY_REFERENCE` or `../shared/reference`. Hours, and the difference of ours to the original.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from allocation.solvers.linear_program import divert_native_output
from benchmarks.problems import reference
from simulation.scenario.scenario import Scenario

SMALL, LARGE = "v100=2,p100=2,k80=2", "v100=8,p100=16,k80=24"
FAIR = ("max_min_fairness", "finish_time_fairness", "makespan")
GAVEL = {
    "small_test": (SMALL, ("fifo_fastest", "isolated", *FAIR)),
    "medium_test": (SMALL, ("fifo_fastest", "isolated", "allox", *FAIR)),
    "max_min_fairness": (LARGE, ("fifo_fastest", "isolated", *FAIR)),
}
"""Cluster and policies by trace."""
GAVEL_NAMES = {
    "fifo_fastest": "fifo_perf",
    "makespan": "min_total_duration_perf",
    "isolated": "isolated",
    "allox": "allox",
}
"""Names of policies in the original, where they are not ours followed by `_perf`."""
PACKED = [("medium_test", policy) for policy in FAIR] + [("max_min_fairness", policy) for policy in FAIR]
SIA_POLICY, GAVEL_POLICY = "sia:rounded=true,gap=0.0001", "max_sum_throughput"
SIA_CLUSTER = "aws=6x4,dgx-ext=2x8,rtx=3x8"
HADAR_CLUSTER = "v100=5x4,p100=5x4,k80=5x4"
HADAR = (
    "hadar",
    "hadar:objective=slowdown",
    "hadar:objective=ftf",
    "hadar:objective=makespan",
    "max_min_fairness",
    "finish_time_fairness",
    "max_sum_throughput",
    "makespan",
    "srtf",
    "fifo_fastest",
)
"""Policies of the table."""


class Run(NamedTuple):
    """A simulation to do: words that name it, the trace, the policy, and the options."""

    words: str
    trace: Path
    policy: str
    options: dict[str, Any]


def main() -> None:
    divert_native_output(sys.stderr.fileno())
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=TABLES)
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    asked = parser.parse_args()
    with ProcessPoolExecutor(asked.processes) as pool:
        for name, table in TABLES.items():
            if asked.only in (None, name):
                sys.stdout.writelines(f"{line}\n" for line in table(pool))
                sys.stdout.flush()


def figures_of(run: Run) -> dict[str, Any]:
    """Simulate the run; returns its metrics."""
    return Scenario(**run.options).prepare(run.trace, run.policy, seed=0).finish(lambda _: None)


# -- Gavel --------------------------------------------------------------------------------------------------------


def gavel_table(pool: Executor) -> Iterator[str]:
    runs = [_gavel(trace, policy) for trace, (_, policies) in GAVEL.items() for policy in policies]
    yield "\n| trace | policy | average JCT, h: original | ours | | makespan, h: original | ours | |"
    yield "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |"
    for run, ours in zip(runs, pool.map(figures_of, runs), strict=True):
        original = _gavels_own(run)
        cells = " | ".join(_beside(original, ours, name) for name in ("avg_jct_h", "makespan_h"))
        yield f"| {run.trace.stem} | `{run.policy}` | {cells} |"


def packed_table(pool: Executor) -> Iterator[str]:
    """Two jobs may share GPUs."""
    runs = [_gavel(trace, policy + packed) for trace, policy in PACKED for packed in ("", ":packed=true")]
    found = iter(zip(runs, pool.map(figures_of, runs), strict=True))
    times = "average JCT, h: without | packed | | makespan, h: without | packed | "
    yield f"\n| trace | policy | {times}| GPU-hours a job: without | packed |"
    yield "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    for (run, alone), (_, packed) in zip(found, found, strict=True):
        cells = " | ".join(_beside(alone, packed, name, digits=1) for name in ("avg_jct_h", "makespan_h"))
        hours = " | ".join(f"{figures['gpu_h_per_job']:.2f}" for figures in (alone, packed))
        yield f"| {run.trace.stem} | `{run.policy}` | {cells} | {hours} |"


def _gavel(trace: str, policy: str) -> Run:
    place = reference() / "gavel"
    options = {
        "format_name": "gavel",
        "cluster": GAVEL[trace][0],
        "throughputs": place / "simulation_throughputs.json",
        "shuffle_types": policy == "isolated",
    }
    return Run(trace, place / "traces" / f"{trace}.trace", policy, options)


def _gavels_own(run: Run) -> dict[str, Any]:
    runs = json.loads((reference() / "gavel" / "expected.json").read_text())["simulations"]
    policy = GAVEL_NAMES.get(run.policy, f"{run.policy}_perf")
    wanted = {"trace": run.trace.name, "policy": policy, "solver": "ECOS", "seed": 0, "round_s": 360}
    return next(found for found in runs if wanted.items() <= found.items())


# -- Sia ----------------------------------------------------------------------------------------------------------


def sia_table(pool: Executor) -> Iterator[str]:
    philly, derived = "philly/workload-{}.csv", "derived/philly-1-{}.csv"
    rows = {f"Philly {n}": (philly.format(n), f"sia-philly-{n}") for n in (1, 2, 3)}
    words = {
        "rigid": "all rigid",
        "scale-gpus": "all strong-scaling",
        "small20": "20 small jobs",
        "first20": "first 20 jobs",
    }
    rows |= {f"Philly 1, {said}": (derived.format(key), f"sia-philly-1-{key}") for key, said in words.items()}
    runs = [(_sia(said, file, SIA_POLICY, 60), own) for said, (file, own) in rows.items()]
    runs += [
        (_sia(f"Philly {n}", philly.format(n), GAVEL_POLICY, 360, category="rigid"), f"gavel-philly-{n}")
        for n in (1, 2, 3)
    ]
    originals = json.loads((reference() / "sia" / "expected.json").read_text())["runs"]
    tails = "p99, h: original | ours | makespan, h: original | ours"
    yield f"\n| workload | policy | average JCT, h: original | ours | | {tails} |"
    yield "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    for (run, own), ours in zip(runs, pool.map(figures_of, [run for run, _ in runs]), strict=True):
        original, policy = originals[own], run.policy.partition(":")[0]
        of_both = (original["p99_jct_h_linear"], ours["p99_jct_h"], original["makespan_h"], ours["makespan_h"])
        tail = " | ".join(f"{hours:.2f}" for hours in of_both)
        yield f"| {run.words} | `{policy}` | {_beside(original, ours, 'avg_jct_h', digits=1)} | {tail} |"


def _sia(words: str, file: str, policy: str, round_s: float, **options: Any) -> Run:
    place = reference() / "sia"
    cluster = {"format_name": "sia", "cluster": SIA_CLUSTER, "profiles": place / "apps", "round_s": round_s}
    return Run(words, place / "workloads" / file, policy, cluster | options)


# -- Hadar --------------------------------------------------------------------------------------------------------


def hadar_table(pool: Executor) -> Iterator[str]:
    """200 jobs made as Gavel makes its own, 8 an hour, on 60 GPUs; a row is a policy."""
    with tempfile.TemporaryDirectory() as folder:
        traces = _heavy_load(Path(folder))
        runs = [_hadar(trace, policy) for policy in HADAR for trace in traces]
        found = iter(pool.map(figures_of, runs))
        yield "\n| policy | mean JCT, h, seeds 0, 1, 2 | median JCT, h | makespan, h | restarts a job |"
        yield "| --- | ---: | ---: | ---: | ---: |"
        for policy in HADAR:
            figures = [next(found) for _ in traces]
            names = ("avg_jct_h", "median_jct_h", "makespan_h", "restarts_per_job")
            cells = [", ".join(f"{of_seed[name]:.1f}" for of_seed in figures) for name in names]
            yield f"| `{policy}` | {' | '.join(cells)} |"


def _heavy_load(folder: Path) -> list[Path]:
    rates = str(reference() / "gavel" / "simulation_throughputs.json")
    like = ["--like", "gavel", "--jobs", "200", "--per-hour", "8", "--cluster", HADAR_CLUSTER, "--throughputs", rates]
    words = ["generate", *like, "--seeds", "0-2", "--out", str(folder / "heavy-{seed}.csv")]
    subprocess.run([sys.executable, "-m", "simulation", *words], check=True, capture_output=True)
    return sorted(folder.iterdir())


def _hadar(trace: Path, policy: str) -> Run:
    rates = reference() / "gavel" / "simulation_throughputs.json"
    options = {"format_name": "csv", "cluster": HADAR_CLUSTER, "throughputs": rates, "restart_s": 10.0}
    return Run(trace.stem, trace, policy, options)


def _beside(original: dict[str, Any], ours: dict[str, Any], name: str, digits: int = 2) -> str:
    one, other = original[name], ours[name]
    return f"{one:.4f} | {other:.4f} | {100 * (other / one - 1):+.{digits}f} %"


TABLES: dict[str, Callable[[Executor], Iterator[str]]] = {
    "gavel": gavel_table,
    "packed": packed_table,
    "sia": sia_table,
    "hadar": hadar_table,
}


if __name__ == "__main__":
    main()
