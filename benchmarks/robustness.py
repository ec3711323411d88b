"""Policies that are told wrong rates, lengths and restart times: `python -m benchmarks.robustness --policies motley`.

The five teams of `benchmarks.contention` at load 1.0, three seeds; each job is of one of 30 workloads. Columns are
the change of the mean JCT, with the 95 % interval of a paired bootstrap over the traces, and of the team share error,
against the same policy and traces without errors.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from allocation.solvers.linear_program import divert_native_output
from benchmarks.contention import Figures, Run, difference, performed
from benchmarks.contention_scenarios import RESTART_S, philly_jobs, philly_options, written
from simulation.scenario.setting import read_seeds
from simulation.traces.trace import Program, TraceJob

POLICIES = ("motley", "max_min_fairness", "finish_time_fairness", "sia", "srtf")
RIGHT = "no error"
ERRORS: dict[str, dict[str, Any]] = {
    RIGHT: {},
    "rates up to 30 % off": {"rate_error": 0.3},
    "lengths twice or half": {"length_error": 2},
    "restarts four times as long as told": {"told_restart_s": RESTART_S / 4},
    "all three": {"rate_error": 0.3, "length_error": 2, "told_restart_s": RESTART_S / 4},
}
WORKLOADS = 30
LOAD = 1.0


def main() -> None:
    divert_native_output(sys.stderr.fileno())
    asked = _arguments()
    with tempfile.TemporaryDirectory() as name:
        runs = list(_runs(asked.policies, asked.seeds, Path(name)))
        found = performed(runs, asked.json, asked.processes)
    by_case: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for run in runs:
        by_case.setdefault((run.policy, run.scenario), []).append(found[run.key])
    sys.stdout.writelines(line + "\n" for line in table(asked.policies, by_case))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policies", type=lambda text: text.split(";"), default=POLICIES, help="apart by ;")
    parser.add_argument("--seeds", type=read_seeds, default=[0, 1, 2])
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--json", type=Path, help="append figures there; runs found there are not repeated")
    return parser.parse_args()


def _runs(policies: Sequence[str], seeds: Sequence[int], folder: Path) -> Iterator[Run]:
    traces = written("robust", jobs_of_workloads, seeds)(folder)
    for policy in policies:
        for error, options in ERRORS.items():
            scenario = replace(philly_options(folder), **options)
            for seed, trace in zip(seeds, traces, strict=True):
                yield Run(error, policy, scenario, trace, seed)


def jobs_of_workloads(seed: int) -> Iterator[TraceJob]:
    """The jobs of load 1.0, each of one of some workloads, which are equally fast: only errors tell them apart."""
    of_job = np.random.default_rng([seed, 2]).integers(WORKLOADS, size=10_000)
    for job, workload in zip(philly_jobs(LOAD)(seed), of_job.tolist(), strict=False):
        yield replace(job, program=Program(f"workload-{workload}"))


def table(policies: Sequence[str], by_case: Mapping[tuple[str, str], Sequence[Figures]]) -> Iterator[str]:
    """Lines of the table in Markdown."""
    yield "| policy | error | JCT mean | against none | share error | against none |"
    yield "| --- | --- | ---: | ---: | ---: | ---: |"
    for policy in policies:
        for error in ERRORS:
            mine, right = by_case[policy, error], by_case[policy, RIGHT]
            yield f"| `{policy}` | {error} | {_row(mine, right)} |"


def _row(mine: Sequence[Figures], right: Sequence[Figures]) -> str:
    if failed := next((one["failed"] for one in mine if "failed" in one), None):
        return str(failed)[:80]
    share, without = (_mean("team_share_error", runs) for runs in (mine, right))
    apart = "" if mine is right else f"{100 * (share - without):+.1f} points"
    return f"{_mean('avg_jct_h', mine):.3f} | {difference(mine, right)} | {share:.1%} | {apart}"


def _mean(name: str, runs: Sequence[Figures]) -> float:
    return float(np.mean([one[name] for one in runs]))


if __name__ == "__main__":
    main()
