"""What it saves, and what it loses, to decide a round in parts (POP), on one core: `python -m benchmarks.pop`.

Parts are decided one after the other; what they would take side by side is told by the longest. The loss is of the
policy's own objective, next to the whole round's, on the mean and at worst of some splits.
"""

import argparse
import os
import sys
from collections.abc import Callable
from functools import partial
from time import perf_counter

from allocation.decision import Decision
from allocation.policies.max_min_fairness import max_min_fairness
from allocation.policies.max_sum_throughput import max_sum_throughput
from allocation.policies.parameters import Policy
from allocation.problem import Problem
from allocation.solvers.linear_program import divert_native_output
from benchmarks.problems import INPUTS, rigid
from simulation.rules.pop import Together, decide_in_parts

POLICIES: dict[str, tuple[Policy, Together]] = {
    "max_min_fairness": (max_min_fairness, min),
    "max_sum_throughput": (max_sum_throughput, sum),
}
PARTS = (1, 2, 4, 8, 16)


class Watch:
    """A policy that notes how long each call took."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.seconds: list[float] = []

    def __call__(self, problem: Problem) -> Decision:
        decision, seconds = _timed(partial(self.policy, problem))
        self.seconds.append(seconds)
        return decision


def main() -> None:
    divert_native_output(sys.stderr.fileno())
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=2048)
    parser.add_argument("--types", type=int, default=3)
    parser.add_argument("--load", type=float, default=4.0, help="the GPUs that jobs ask for, over all there are")
    parser.add_argument("--splits", type=int, default=5, help="by chance, of which the mean and the worst are told")
    arguments = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    print("| policy | jobs | types | input | parts | seconds | longest part | loss | at worst |")
    print("| --- | ---: | ---: | --- | ---: | ---: | ---: | ---: | ---: |")
    for name in POLICIES:
        for kind in INPUTS:
            problem = rigid(arguments.jobs, kind=kind, types=arguments.types, load=arguments.load)
            for parts in PARTS:
                about = f"| `{name}` | {arguments.jobs} | {arguments.types} | {kind} | {parts} |"
                print(about, _figures(name, problem, parts, arguments.splits), "|", flush=True)


def _figures(name: str, problem: Problem, parts: int, splits: int) -> str:
    policy, together = POLICIES[name]
    whole = policy(problem).objective
    found, longest, losses = [], [], []
    for seed in range(splits):
        watch = Watch(policy)
        decision, seconds = _timed(partial(decide_in_parts, problem, watch, parts=parts, together=together, seed=seed))
        found.append(seconds)
        longest.append(max(watch.seconds))
        losses.append(1 - decision.objective / whole)
    mean = sum(losses) / splits
    return f"{sorted(found)[splits // 2]:.3f} | {sorted(longest)[splits // 2]:.3f} | {mean:.2%} | {max(losses):.2%}"


def _timed(decide: Callable[[], Decision]) -> tuple[Decision, float]:
    began = perf_counter()
    decision = decide()
    return decision, perf_counter() - began


if __name__ == "__main__":
    main()
