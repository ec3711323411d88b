"""What the ratio of ended stages tells of the next one: `python -m benchmarks.stages`, as Markdown.

Workflows of four stages, each ten times as long as the one before, a hundred seconds the first. What history expects of
a stage is wrong by a factor that all stages of a workflow share, and by one of its own; the spreads are standard
deviations of their logarithms. Half of the estimates are within the factors that are told. No data is needed.
"""

import argparse
import sys

import numpy as np

from allocation.types import Floats
from estimation.stages import LEAST_RATIO, MOST_RATIO, EndedStage, stage_ratios

STAGES = 4
SPREADS = ((0.3, 0.3), (1.0, 0.3), (2.0, 0.3), (0.5, 0.5), (1.0, 1.0), (0.3, 1.0), (0.0, 1.0))
"""Of workflows, and of stages of one workflow."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workflows", type=int, default=5000)
    workflows = parser.parse_args().workflows
    sys.stdout.write("| spread of workflows, of stages | stage | history | corrected | plain ratio |\n")
    sys.stdout.write("| --- | ---: | ---: | ---: | ---: |\n")
    for shared, own in SPREADS:
        error = np.array(errors(workflows, shared, own, np.random.default_rng(0)))
        for stage in range(1, STAGES):
            history, corrected, plain = np.exp(np.median(np.abs(error[:, stage - 1]), axis=0))
            sys.stdout.write(f"| {shared:g}, {own:g} | {stage + 1} | {history:.2f} | {corrected:.2f} | {plain:.2f} |\n")


def errors(workflows: int, shared: float, own: float, rng: np.random.Generator) -> Floats:
    """Logarithms (W, K - 1, 3) of estimates over the truth, from the second stage: of history, corrected, plain."""
    expected = 100.0 * np.power(10.0, np.arange(STAGES, dtype=np.float64))
    off = shared * rng.standard_normal((workflows, 1)) + own * rng.standard_normal((workflows, STAGES))
    took = np.asarray(expected * np.exp(off), dtype=np.float64)
    corrected = np.array([_corrected(expected, took[w]) for w in range(workflows)])
    ratio = took.cumsum(axis=1)[:, :-1] / expected.cumsum()[:-1]
    plain = np.clip(ratio, LEAST_RATIO, MOST_RATIO) * expected[1:]
    return np.log(np.stack([np.broadcast_to(expected[1:], plain.shape), corrected, plain], axis=2) / took[:, 1:, None])


def _corrected(expected: Floats, took: Floats) -> Floats:
    """Estimate of each stage but the first, once those before it have ended."""
    stages = range(STAGES)
    ended = {k: EndedStage(float(expected[k]), corrected=False, took_gpu_s=float(took[k])) for k in stages}
    ratio = stage_ratios({k: frozenset({k - 1}) if k else frozenset() for k in stages}, ended)
    return np.array([expected[k] * ratio[k].ratio for k in stages if k])


if __name__ == "__main__":
    main()
