"""Rounds with 10,000 active jobs on 10,000 GPUs, a tenth replaced between two; with and without progress to hear."""

from statistics import median

from benchmarks.a_round import Bench
from benchmarks.figures import Figure

JOBS = GPUS = 10_000
PROGRESSING = 2_000
ROUNDS = 4
"""Of each kind, in turn; before them one fills the cluster."""
STEPS = ("observe", "snapshot", "decide", "explain", "archive", "commit", "forecasts", "reasons", "dispatch")


def measure(*, all_different: bool, elastic: bool = False, policy: str = "max_min_fairness") -> list[Figure]:
    kinds = "all different" if all_different else "of 200 workloads"
    kinds += f", elastic, under {policy}" if elastic else ""
    bench = Bench(jobs=JOBS, gpus=GPUS, seed=0, all_different=all_different, elastic=elastic, policy=policy)
    bench.round()
    quiet, beside = [], []
    for _ in range(ROUNDS):
        bench.progressing = 0
        quiet.append(bench.round())
        bench.progressing = PROGRESSING
        beside.append(bench.round())
    usual = median(each["end to end"] for each in quiet)
    heard = median(each["changes heard"] for each in quiet)
    figures = [
        Figure(f"round, 10,000 jobs {kinds}: end to end", usual, "s", 2.5 if all_different and not elastic else 3),
        Figure(f"round, 10,000 jobs {kinds}: its commit", median(each["commit"] for each in quiet), "s", 0.5),
        Figure(
            f"round, 10,000 jobs {kinds}: with the progress of 2,000 over without, at worst",
            max(each["end to end"] / each["without progress"] for each in beside),
            "times",
            1.2,
        ),
        Figure(f"round, 10,000 jobs {kinds}: hearing of the changes", heard, "s", 1),
    ]
    steps = [(step, median(each[step] for each in quiet)) for step in STEPS]
    return figures + [Figure(f"round, 10,000 jobs {kinds}: {step}", seconds, "s") for step, seconds in steps]
