"""Hours that one more node saves, or one less costs, by prices beside simulations: `python -m benchmarks.node_savings`.

Generated jobs that resemble Philly's, none longer than half a day, run under `motley` in the simulator by the service's
rules: on the cluster, and with one node more and one less of each GPU type. By prices are those of the rounds on the
cluster, times the hours for which each was in force, summed up and extrapolated by `allocation.plan.more_gpus`;
simulated is the difference of the sums of completion times. `--json FILE` keeps what has been simulated.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from allocation.decision import Decision
from allocation.plan.more_gpus import hours_saved
from allocation.policies import POLICIES
from allocation.problem import Problem
from allocation.solvers.linear_program import divert_native_output
from allocation.types import Floats
from simulation.clock.round_rules import PlannedRound
from simulation.clock.run import Simulation
from simulation.clock.state import State
from simulation.cluster import Cluster
from simulation.rules.service import ServiceRules
from simulation.scenario.generator import generate
from simulation.scenario.generator_options import GeneratorOptions
from simulation.scenario.setting import begin
from simulation.traces.trace import Trace
from simulation.workloads.rate_sources import BySpeed

POLICY, TEAMS, LONGEST_S, HOUR_S = "motley", 4, 12 * 3600.0, 3600.0
NODE = 4
"""GPUs of a node."""
MIN_RUN_S, RESTART_S, DELAY_S = 300.0, 60.0, 1.0


class Case(NamedTuple):
    """Nodes of each of V100 and T4, load, and seed of the jobs."""

    nodes: int
    load: float
    seed: int


@dataclass(eq=False)
class RecordingRules(ServiceRules):
    """The service's rules; the prices of each round are kept with the time of the round."""

    rounds: list[tuple[float, Floats]] = field(default_factory=list)

    def plan(self, state: State, *, changed: bool) -> PlannedRound:
        asked, decided = self.policy, list[Decision]()

        def recorded(problem: Problem) -> Decision:
            decided.append(asked(problem))
            return decided[-1]

        self.policy = recorded
        planned = super().plan(state, changed=changed)
        self.policy = asked
        none = np.zeros(len(self.cluster.gpu_types))
        self.rounds.append((state.now_s, decided[-1].prices if decided else none))
        return planned


def jobs_of(case: Case, jobs: int) -> Trace:
    """Philly-like jobs, truncated to half a day; interarrival times are scaled so that the load stays the same."""
    options = GeneratorOptions(like="philly", jobs=jobs, load=case.load, cluster=_words([case.nodes] * 2), teams=TEAMS)
    drawn = generate(options, case.seed).jobs
    most = [LONGEST_S * options.rate(job.program.workload, job.gangs[0]) for job in drawn]
    steps = [min(job.total_steps or 0, longest) for job, longest in zip(drawn, most, strict=True)]
    sooner = sum(steps) / sum(job.total_steps or 0 for job in drawn)
    return Trace.of(
        replace(job, arrival_s=sooner * job.arrival_s, total_steps=left) for job, left in zip(drawn, steps, strict=True)
    )


def _words(nodes: Sequence[int]) -> str:
    return ",".join(f"{name}={count}x{NODE}" for name, count in zip(("v100", "t4"), nodes, strict=True))


def simulated(trace: Trace, nodes: Sequence[int], round_s: float) -> tuple[float, list[float]]:
    """Sum of completion times in hours, and of prices times hours for each GPU type."""
    cluster = Cluster.parse(_words(nodes))
    rules = RecordingRules(
        cluster, POLICIES[POLICY], round_s, min_run_s=MIN_RUN_S, first_start_s=None, event_delay_s=DELAY_S
    )
    state = Simulation(begin(trace, cluster, BySpeed(), rules, None, restart_s=RESTART_S), rules).run()
    begins = [began_s for began_s, _ in rules.rounds]
    hours = [(end - start) / HOUR_S for start, end in pairwise([*begins, float(np.nanmax(state.finish_s))])]
    priced = sum((max_0(prices) * h for (_, prices), h in zip(rules.rounds, hours, strict=True)), np.zeros(2))
    return float(np.nansum(state.finish_s - state.jobs.arrival_s)) / HOUR_S, [float(one) for one in priced]


def max_0(prices: Floats) -> Floats:
    positive: Floats = np.maximum(prices, 0)
    return positive


def rows_of(case: Case, jobs: int, round_s: float) -> Iterator[tuple[str, int, float, float]]:
    """GPU type, nodes more, hours that the first GPU saves by prices, and hours saved as simulated."""
    trace, there = jobs_of(case, jobs), [case.nodes] * 2
    sum_h, priced_h = simulated(trace, there, round_s)
    for place, name in enumerate(("v100", "t4")):
        for more in (1, -1):
            nodes = [count + more * (at == place) for at, count in enumerate(there)]
            yield name, more, priced_h[place], sum_h - simulated(trace, nodes, round_s)[0]


def main() -> None:
    divert_native_output(sys.stderr.fileno())
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="*", default=(3, 6))
    parser.add_argument("--loads", type=float, nargs="*", default=(0.8, 1.2))
    parser.add_argument("--seeds", type=int, nargs="*", default=(0, 1, 2))
    parser.add_argument("--jobs", type=int, default=120)
    parser.add_argument("--round", type=float, default=300.0, help="seconds")
    parser.add_argument("--json", type=Path, help="what has been simulated is read from there and kept there")
    options = parser.parse_args()
    kept = json.loads(options.json.read_text()) if options.json and options.json.exists() else {}
    sys.stdout.write(
        "| nodes of each type | load | seed | node | by prices, h | simulated, h | by prices / simulated |\n"
    )
    for case in (Case(n, load, seed) for n in options.nodes for load in options.loads for seed in options.seeds):
        key = f"{case} {options.jobs} {options.round}"
        if key not in kept:
            kept[key] = list(rows_of(case, options.jobs, options.round))
            if options.json:
                options.json.write_text(json.dumps(kept))
        for name, more, per_gpu_h, truth in kept[key]:
            by_prices = hours_saved(per_gpu_h, gpus=case.nodes * NODE, more=more * NODE)
            cells = f"{by_prices:.1f} | {truth:.1f} | {by_prices / truth:.2f}"
            sys.stdout.write(f"| {case.nodes} | {case.load} | {case.seed} | {more:+d} {name} | {cells} |\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
