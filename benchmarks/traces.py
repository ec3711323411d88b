"""Whole traces through the simulator, on one core: `python -m benchmarks.traces`; with `--only gavel`, one of them.

Each is the command as a person gives it, start and all, in a process of its own. The traces are reference data, from
`MOTLEY_REFERENCE` or `../shared/reference`. Below them, what a round costs by the number of active jobs.
"""

import argparse
import json
import os
import subprocess
import sys
from contextlib import suppress
from itertools import pairwise
from statistics import median
from time import perf_counter
from typing import Any

from benchmarks.figures import Figure, table
from benchmarks.policies import ONE_CORE
from benchmarks.problems import reference

REFERENCE = reference()
GAVEL, SIA, PHILLY = REFERENCE / "gavel", REFERENCE / "sia", REFERENCE / "traces" / "philly_jobs_sia.csv.gz"
GAVELS = f"{GAVEL}/traces/max_min_fairness.trace --format gavel --throughputs {GAVEL}/simulation_throughputs.json"
SIAS = f"{SIA}/workloads/philly/workload-1.csv --format sia --profiles {SIA}/apps --round 60"
GPUS_400 = "v100=50x4,t4=25x4,p100=25x4"
PHILLYS = f"{PHILLY} --format philly --cluster {GPUS_400}"
COMMANDS = {
    "gavel, 96 jobs, max_min_fairness": (f"{GAVELS} --cluster v100=8,p100=16,k80=24 --policy max_min_fairness", 1),
    "sia, Philly 1, sia": (f"{SIAS} --cluster aws=6x4,dgx-ext=2x8,rtx=3x8 --policy sia", 15),
    "sia, Philly 1, motley": (
        f"{SIAS} --cluster aws=6x4,dgx-ext=2x8,rtx=3x8 --policy motley --knowledge informed",
        15,
    ),
    "philly, 82,247 jobs, srtf": (f"{PHILLYS} --policy srtf", 180),
    "philly, 82,247 jobs, max_min_fairness": (f"{PHILLYS} --policy max_min_fairness", 180),
}
"""What is run, and in how many seconds it is to be done."""
MOST_MIB = 2048
ACTIVE = (1_000, 2_000, 4_000, 8_000, 16_000)
ROUNDS = 15


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", help="of the traces, those whose name begins so; `rounds`: the rounds alone")
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    only = parser.parse_args().only or ""
    chosen = [name for name in COMMANDS if name.startswith(only)]
    if chosen and not PHILLY.exists():
        print(f"no traces in {REFERENCE}")
    elif chosen:
        print(table(figure for name in chosen for figure in _measured(name)), flush=True)
    if only in ("", "rounds"):
        _print_rounds()


def _measured(name: str) -> list[Figure]:
    words, target_s = COMMANDS[name]
    began = perf_counter()
    command = [sys.executable, "-m", "simulation", "run", *words.split(), "--json"]
    with subprocess.Popen(command, env=os.environ | ONE_CORE, stdout=subprocess.PIPE) as process:
        said = json.load(process.stdout or sys.stdin)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    return [
        Figure(name, perf_counter() - began, "s", target_s),
        Figure(f"{name}: of the processor", used.ru_utime + used.ru_stime, "s"),
        Figure(f"{name}: at most", used.ru_maxrss / 1024, "MiB", MOST_MIB),
        Figure(f"{name}: a decision, p50", said["decision_ms"]["p50"], "ms"),
        Figure(f"{name}: a decision, p95", said["decision_ms"]["p95"], "ms"),
    ]


def _print_rounds() -> None:
    policies = ("srtf", "max_min_fairness")
    print("\n| active jobs | " + " | ".join(f"`{policy}`, ms a round" for policy in policies) + " |")
    print("| ---: |" + " ---: |" * len(policies))
    for jobs in ACTIVE:
        costs = [1000 * _round_s(policy, jobs) for policy in policies]
        print(f"| {jobs:,} | " + " | ".join(f"{cost:.1f}" for cost in costs) + " |", flush=True)


def _round_s(policy: str, active: int) -> float:
    """The median of some rounds after the first, with so many jobs, gangs as Philly's, that all come at once."""
    simulation = _waiting(policy, active)
    ended: list[float] = []

    def watch(_: object) -> None:
        ended.append(perf_counter())
        if len(ended) > ROUNDS:
            raise _EnoughError

    simulation.watch = watch
    with suppress(_EnoughError):
        simulation.run()
    return median(after - before for before, after in pairwise(ended))


class _EnoughError(Exception):
    pass


def _waiting(policy: str, active: int) -> Any:
    import numpy as np

    from simulation.clock.run import Simulation
    from simulation.clock.state import State
    from simulation.cluster import Cluster
    from simulation.scenario.setting import Setting
    from simulation.traces.trace import TraceJob
    from simulation.workloads.jobs import Jobs
    from simulation.workloads.rate_sources import BySpeed

    rng = np.random.default_rng(0)
    gangs = rng.choice([1, 2, 4, 8, 16], active, p=[0.92, 0.025, 0.025, 0.025, 0.005]).tolist()
    lasts_s = rng.lognormal(10, 1.5, active).tolist()
    trace = [TraceJob(name=str(i), arrival_s=0, gangs=(gangs[i],), duration_s=lasts_s[i]) for i in range(active)]
    setting = Setting.read(policy=policy, rules="service", round_s=360, seed=0, failures=None)
    cluster, rounds = setting.rounds(Cluster.parse(GPUS_400))
    return Simulation(State.before(Jobs.of(trace, cluster, BySpeed()), cluster, [0.0] * 3), rounds)


if __name__ == "__main__":
    main()
