"""Gangs on GPUs of unequal speed, placed with and without regard to it: `python -m benchmarks.slow_gpus`, as Markdown.

Jobs made as Gavel makes its own, on 64 V100 of eight nodes, by the service's rules. A part of the GPUs, drawn by seed,
is slow; a gang is as fast as its slowest GPU. Policies do not know the speeds; placement does in every second row.
Needs the reference data, see CONTRIBUTING.md.
"""

import argparse
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from allocation.solvers.linear_program import divert_native_output
from allocation.types import Floats
from benchmarks.generated_traces import gavel_table, like_gavel
from simulation.rules.service import ServiceRules
from simulation.scenario.scenario import Scenario

CLUSTER, GPUS = "v100=8x8", 64
POLICIES = ("motley", "srtf", "fifo")
RESTART_S = 60.0
SLOWEST, LEAST = 0.5, 0.05
"""Limits of the uniform distribution from which the slowdown of a slow GPU is drawn."""
FIGURES = ("avg_jct_h", "makespan_h")


def main() -> None:
    divert_native_output(sys.stderr.fileno())
    asked = _arguments()
    sys.stdout.write("| slow GPUs | policy | placement | mean JCT, h, seeds 0, 1, 2 | makespan, h |\n")
    sys.stdout.write("| ---: | --- | --- | ---: | ---: |\n")
    with tempfile.TemporaryDirectory() as folder:
        traces = like_gavel(Path(folder), asked.jobs, asked.per_hour, CLUSTER)
        for slow in asked.slow:
            for policy in POLICIES:
                for by_speed in (False, True):
                    _write(slow, policy, [run(policy, one, n, slow, by_speed=by_speed) for n, one in enumerate(traces)])
                    sys.stdout.flush()


def _write(slow: float, policy: str, runs: Sequence[Mapping[str, Any]]) -> None:
    jct = ", ".join(f"{one['avg_jct_h']:.2f}" for one in runs)
    makespan = fmean(one["makespan_h"] for one in runs)
    placed = runs[0]["placement"]
    sys.stdout.write(f"| {slow:.0%} | `{policy}` | {placed} | {jct} | {makespan:.1f} |\n".replace("%", " %"))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=150)
    parser.add_argument("--per-hour", type=float, default=2.5)
    parser.add_argument("--slow", type=float, nargs="*", default=[0.1, 0.3], help="parts of the GPUs that are slow")
    return parser.parse_args()


def slower_by(part: float, seed: int) -> Floats:
    """Part (G,) by which each GPU is slower than its type, 0 for most."""
    rng = np.random.default_rng(seed)
    slow = rng.permutation(GPUS) < round(part * GPUS)
    return np.where(slow, rng.uniform(LEAST, SLOWEST, GPUS), 0.0)


def run(policy: str, trace: Path, seed: int, slow: float, *, by_speed: bool) -> Mapping[str, Any]:
    """The figures of one run; the same GPUs are slow with both placements."""
    scenario = Scenario(format_name="csv", cluster=CLUSTER, throughputs=gavel_table(), restart_s=RESTART_S)
    ready = scenario.prepare(trace, policy, seed=seed)
    rules = ready.simulation.rounds
    assert isinstance(rules, ServiceRules)
    rules.gpu_slower_by, rules.places_by_speed = slower_by(slow, seed), by_speed
    figures = ready.finish(lambda _: None)
    return {**figures, "placement": "fast GPUs first" if by_speed else "tight alone"}


if __name__ == "__main__":
    main()
