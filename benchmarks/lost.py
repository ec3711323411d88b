"""Where the distance to the bound is lost: `python -m benchmarks.lost --policies "motley;motley_static;sia"`.

Sia's three Philly workloads by its rules, with one obstacle removed in each row; means over the three, in hours, and
the bound of the workloads as they are. The traces are in `MOTLEY_REFERENCE` or `../shared/reference`.
"""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from itertools import repeat
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

from allocation.solvers.linear_program import divert_native_output
from allocation.types import Floats, Ints
from benchmarks.ablation import CLUSTER, REFERENCE, philly
from simulation.clock.service_training import SERVICE
from simulation.clock.training import Training
from simulation.results.bound import certified_bound
from simulation.scenario.scenario import Scenario, TraceRun

TEN_TIMES = "aws=60x4,dgx-ext=20x8,rtx=30x8"
FIGURES = ("avg_jct_h", "median_jct_h", "p99_jct_h", "makespan_h", "restarts_per_job", "overhead")


def scenario(cluster: str = CLUSTER) -> Scenario:
    profiles = REFERENCE / "apps"
    return Scenario(format_name="sia", cluster=cluster, profiles=profiles, knowledge=SERVICE, round_s=60)


def as_it_is(_: TraceRun) -> None:
    """Simulate as it is: nothing is removed."""


def without_restarts(run: TraceRun) -> None:
    """Starts and moves take no time, and the policy knows it."""
    state = run.simulation.state
    free = np.zeros_like(state.jobs.restart_s)
    state.jobs = replace(state.jobs, restart_s=free, told_restart_s=free.copy())
    if isinstance(state.work, Training):  # it tells policies how long restarts take
        state.work.jobs = state.jobs


def rates_known_now(run: TraceRun) -> None:
    _tell(run, ahead=False)


def rates_known_ahead(run: TraceRun) -> None:
    _tell(run, ahead=True)


def _tell(run: TraceRun, *, ahead: bool) -> None:
    """Tell the policy the true rates, in place of what is learned."""
    state, work = run.simulation.state, run.simulation.state.work
    if not isinstance(work, Training):
        raise TypeError("rates are learned where jobs train")

    def believed(rows: Ints) -> tuple[Floats, Ints]:
        possible = state.jobs.kind_rate[state.jobs.kind[rows]] > 0
        true = work.true_rates(rows, state.left[rows], ahead=ahead)
        return np.where(possible, true, 0), np.arange(len(rows))

    work.believed = believed  # type: ignore[method-assign]


ROWS: dict[str, tuple[str, str, Callable[[TraceRun], None]]] = {
    "as it is": ("", CLUSTER, as_it_is),
    "restarts take no time": ("", CLUSTER, without_restarts),
    "rates are known, those of now": ("", CLUSTER, rates_known_now),
    "rates are known, those of all that is left": ("", CLUSTER, rates_known_ahead),
    "no leases, no reservations": ("patience=0,lease_growth=0", CLUSTER, as_it_is),
    "ten times the GPUs": ("", TEN_TIMES, as_it_is),
}
"""Row → parameters of the policy, the cluster, and what is removed."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policies", type=lambda text: text.split(";"), default=["motley", "motley_static"])
    parser.add_argument("--rows", type=lambda text: [list(ROWS)[int(n)] for n in text.split(",")], default=list(ROWS))
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    asked = parser.parse_args()
    divert_native_output(sys.stderr.fileno())
    sys.stdout.write("| policy | | mean | median | p99 | makespan | restarts | overhead |\n")
    sys.stdout.write("| --- | --- |" + " ---: |" * len(FIGURES) + "\n")
    with ProcessPoolExecutor(asked.processes) as pool:
        for policy in asked.policies:
            for row in asked.rows:
                if ROWS[row][0] and not policy.startswith("motley"):
                    continue
                sys.stdout.write(line(policy, row, list(pool.map(figures, philly(), repeat(policy), repeat(row)))))
                sys.stdout.flush()
        bounds = list(pool.map(certified_bound, repeat(scenario()), philly()))
    least_jct, least_makespan = (mean(getattr(one, name) for one in bounds) for name in ("avg_jct_h", "makespan_h"))
    sys.stdout.write(f"| bound | | {least_jct:.3f} | | | {least_makespan:.2f} | | |\n")


def figures(trace: Path, policy: str, row: str) -> dict[str, Any]:
    """The figures of one run without the obstacle of the row."""
    parameters, cluster, remove = ROWS[row]
    joined = ("," if ":" in policy else ":").join([policy, parameters]) if parameters else policy
    run = scenario(cluster).prepare(trace, joined, seed=0)
    remove(run)
    return run.finish(lambda _: None)


def line(policy: str, row: str, runs: Sequence[dict[str, Any]]) -> str:
    """A row of the table."""
    jct, median, p99, makespan, restarts, overhead = (mean(run[name] for run in runs) for name in FIGURES)
    cells = f"{jct:.3f} | {median:.3f} | {p99:.2f} | {makespan:.2f} | {restarts:.1f} | {overhead:.1%}"
    return f"| `{policy}` | {row} | {cells} |\n"


if __name__ == "__main__":
    main()
