"""What policies lose by knowing only what a service has heard: `python -m benchmarks.knowledge`.

Sia's three Philly workloads, from `MOTLEY_REFERENCE` or `../shared/reference`, by Sia's rules on its cluster: the same
policies by each `--knowledge` of the simulator, and by that of a service of which running jobs keep the batch of their
launch. Means over the traces.
"""

import argparse
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from pathlib import Path
from statistics import mean
from typing import Any

from allocation.solvers.linear_program import divert_native_output
from benchmarks.ablation import CLUSTER, REFERENCE, philly
from simulation.clock.service_training import ServiceTraining
from simulation.scenario.scenario import Scenario

POLICIES, KEPT = ("motley", "sia"), "service, batches kept"
KNOWLEDGE = ("own", "informed", "service", KEPT)
HEADER = """| policy | knowledge | mean JCT, h | each | p99 | makespan | restarts a job |
| --- | --- | ---: | --- | ---: | ---: | ---: |
"""


def main() -> None:
    divert_native_output(sys.stderr.fileno())
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--knowledge", choices=KNOWLEDGE, nargs="+", default=KNOWLEDGE)
    asked = parser.parse_args()
    sys.stdout.write(HEADER)
    with ProcessPoolExecutor(asked.processes) as pool:
        for policy in POLICIES:
            for knowledge in asked.knowledge:
                runs = list(pool.map(run, philly(), repeat(policy), repeat(knowledge)))
                sys.stdout.write(row(policy, knowledge, runs))
                sys.stdout.flush()


def run(trace: Path, policy: str, knowledge: str) -> dict[str, Any]:
    """The figures of one run."""
    known = knowledge.partition(",")[0]
    scenario = Scenario(format_name="sia", cluster=CLUSTER, profiles=REFERENCE / "apps", knowledge=known, round_s=60)
    prepared = scenario.prepare(trace, policy, seed=0)
    if knowledge == KEPT:
        work = prepared.simulation.state.work
        assert isinstance(work, ServiceTraining)
        work.follows_noise = False
    return prepared.finish(lambda _: None)


def row(policy: str, knowledge: str, runs: list[dict[str, Any]]) -> str:
    average = [figures["avg_jct_h"] for figures in runs]
    p99, makespan, restarts = (mean(f[name] for f in runs) for name in ("p99_jct_h", "makespan_h", "restarts_per_job"))
    each = ", ".join(f"{value:.3f}" for value in average)
    return (
        f"| `{policy}` | `{knowledge}` | {mean(average):.3f} | {each} | {p99:.1f} | {makespan:.1f} | {restarts:.1f} |\n"
    )


if __name__ == "__main__":
    main()
