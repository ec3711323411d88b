"""What policies lose by knowing only what a service has heard: `python -m benchmarks.knowledge`.

Sia's three Philly workloads, from `MOTLEY_REFERENCE` or `../shared/reference`, by Sia's rules on its cluster: the same
policies by each `--knowledge` of the simulator. Means over the traces.
"""

import argparse
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from statistics import mean
from typing import Any

from benchmarks.ablation import philly, run

POLICIES, KNOWLEDGE = ("motley", "sia"), ("own", "informed", "service")
HEADER = """| policy | knowledge | mean JCT, h | each | p99 | makespan | restarts a job |
| --- | --- | ---: | --- | ---: | ---: | ---: |
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    sys.stdout.write(HEADER)
    with ProcessPoolExecutor(parser.parse_args().processes) as pool:
        for policy in POLICIES:
            for knowledge in KNOWLEDGE:
                runs = list(pool.map(run, philly(), repeat(policy), repeat(knowledge)))
                sys.stdout.write(row(policy, knowledge, runs))
                sys.stdout.flush()


def row(policy: str, knowledge: str, runs: list[dict[str, Any]]) -> str:
    average = [figures["avg_jct_h"] for figures in runs]
    p99, makespan, restarts = (mean(f[name] for f in runs) for name in ("p99_jct_h", "makespan_h", "restarts_per_job"))
    each = ", ".join(f"{value:.3f}" for value in average)
    return (
        f"| `{policy}` | `{knowledge}` | {mean(average):.3f} | {each} | {p99:.1f} | {makespan:.1f} | {restarts:.1f} |\n"
    )


if __name__ == "__main__":
    main()
