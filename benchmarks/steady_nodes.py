"""Gangs on stable and spot nodes, placed with and without regard to losses: `python -m benchmarks.steady_nodes`.

Jobs made as Gavel makes its own, on 60 GPUs of three types, by the service's rules; every second node is a spot machine
that stays for four hours and is away for one, the others fail once in ninety days. Jobs save every half hour. Needs the
reference data, see CONTRIBUTING.md.
"""

import argparse
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from allocation.solvers.linear_program import divert_native_output
from benchmarks.generated_traces import gavel_table, like_gavel
from simulation.clock.node_failures import NodeFailures
from simulation.rules.service import ServiceRules
from simulation.scenario.scenario import Scenario

CLUSTER, NODES = "v100=5x4,p100=5x4,k80=5x4", 15
POLICIES = ("motley", "srtf", "max_min_fairness")
HOUR = 3600.0
UP_S, DOWN_S = (90 * 24 * HOUR, 4 * HOUR), (4 * HOUR, 1 * HOUR)
"""Means of stable and of spot nodes, which alternate within a type."""
CHECKPOINT_S, RESTART_S = 1800.0, 60.0
FIGURES = ("avg_jct_h", "lost_gpu_hours", "makespan_h")


def main() -> None:
    divert_native_output(sys.stderr.fileno())
    asked = _arguments()
    sys.stdout.write("| policy | placement | mean JCT, h | lost GPU-hours | makespan, h |\n")
    sys.stdout.write("| --- | --- | ---: | ---: | ---: |\n")
    with tempfile.TemporaryDirectory() as folder:
        traces = like_gavel(Path(folder), asked.jobs, asked.per_hour, CLUSTER)
        for policy in POLICIES:
            for by_loss in (False, True):
                runs = [run(policy, trace, seed, by_loss=by_loss) for seed, trace in enumerate(traces)]
                cells = " | ".join(f"{fmean(one[name] for one in runs):.2f}" for name in FIGURES)
                sys.stdout.write(f"| `{policy}` | {'steady nodes first' if by_loss else 'tight alone'} | {cells} |\n")
                sys.stdout.flush()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=30)
    parser.add_argument("--per-hour", type=float, default=3)
    return parser.parse_args()


def run(policy: str, trace: Path, seed: int, *, by_loss: bool) -> Mapping[str, Any]:
    """The figures of one run; nodes fail at the same times with both placements."""
    scenario = Scenario(
        format_name="csv", cluster=CLUSTER, throughputs=gavel_table(), restart_s=RESTART_S, checkpoint_s=CHECKPOINT_S
    )
    ready = scenario.prepare(trace, policy, seed=seed)
    rules = ready.simulation.rounds
    assert isinstance(rules, ServiceRules)
    up_s, down_s = np.resize(UP_S, NODES), np.resize(DOWN_S, NODES)
    rules.node_failures = NodeFailures.of(NODES, mean_up_s=up_s, mean_down_s=down_s, seed=seed)
    rules.places_by_loss = by_loss
    return ready.finish(lambda _: None)


if __name__ == "__main__":
    main()
