"""Cost of a run of forecasts, from the input that the service reads: `python -m benchmarks.forecast_cost`, as Markdown.

Jobs of 1 to 8 GPUs ask for three times the GPUs of three types; a third of them run and two thirds wait. The newest
2,000 jobs of the last days arrive again. Reading the queue and playing its futures are told apart.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import timedelta
from multiprocessing import get_context
from time import perf_counter, process_time
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from allocation.solvers.linear_program import divert_native_output

if TYPE_CHECKING:
    from benchmarks.a_round import Bench

CROWDED = 3.0
"""GPUs that the jobs ask for, over those that there are."""
BUSY = 0.8
"""Offered load: GPU-hours of the jobs that arrive in an hour, over the GPUs of the cluster."""
MEDIAN_S, SPREAD, LONGEST_S = 3600.0, 1.2, 12 * 3600.0
"""Of the durations of jobs, log-normal."""
MEAN_GANG, MEAN_S = 1.8, 1.8 * 3600
ENDED = 2000


class Cost(NamedTuple):
    jobs: int
    policy: str
    read_s: float
    play_s: float
    draws: int
    cpu_s: float


def cost(jobs: int, policy: str, draws: int, seed: int) -> Cost:
    """Seconds of one run, in a process of its own: the settings are read once."""
    with tempfile.TemporaryDirectory(prefix="motley-bench-") as folder:
        os.environ |= {"DJANGO_SETTINGS_MODULE": "config.settings", "MOTLEY_VAR": folder, "MOTLEY_LOG_LEVEL": "WARNING"}
        import django

        django.setup()
        return _cost(jobs, policy, draws, seed)


def _cost(jobs: int, policy: str, draws: int, seed: int) -> Cost:
    from benchmarks.a_round import GPUS_PER_NODE, Bench
    from forecast.intervals import forecast
    from insight_app.start_forecasts.reading import read_forecast_input

    gpus = max(int(jobs * MEAN_GANG / CROWDED) // GPUS_PER_NODE, 3) * GPUS_PER_NODE
    bench = Bench(jobs=jobs, gpus=gpus, seed=seed, all_different=True, policy=policy)
    give_lengths(bench.rng)
    bench.replaced = 0.0
    bench.round()
    add_history(bench, per_hour=BUSY * gpus / (MEAN_GANG * MEAN_S / 3600))
    began = perf_counter()
    asked = read_forecast_input(bench.now)
    read_s = perf_counter() - began
    began, cpu_began = perf_counter(), process_time()
    found = forecast(asked.present, asked.unknowns, asked.rounds, draws=draws, seed=seed)
    return Cost(jobs, policy, read_s, perf_counter() - began, found.draws, process_time() - cpu_began)


def give_lengths(rng: np.random.Generator) -> None:
    """Set `total_steps` of the queued jobs from log-normal durations."""
    from jobs_app.models import Job

    rows = list(Job.objects.all())
    for row, seconds in zip(rows, _durations_s(rng, len(rows)), strict=True):
        rate = next(iter(row.rates["v100"].values()))
        row.total_steps = max(int(rate * seconds), 1)
    Job.objects.bulk_update(rows, ["total_steps"], batch_size=500)


def add_history(bench: "Bench", *, per_hour: float) -> None:
    """Jobs that ended, submitted evenly before now."""
    from jobs_app.models import Job

    there = set(Job.objects.values_list("pk", flat=True))
    bench._submit(ENDED)
    ended = list(Job.objects.exclude(pk__in=there))
    for back, (row, seconds) in enumerate(zip(ended, _durations_s(bench.rng, len(ended)), strict=True), start=1):
        row.total_steps = max(int(next(iter(row.rates["v100"].values())) * seconds), 1)
        row.created_at = bench.now - timedelta(hours=back / per_hour)
        row.state, row.step = Job.State.CANCELLED, 0
        row.finished_at = bench.now
    Job.objects.bulk_update(ended, ["total_steps", "created_at", "state", "step", "finished_at"], batch_size=500)


def _durations_s(rng: np.random.Generator, count: int) -> list[float]:
    seconds: list[float] = np.minimum(rng.lognormal(np.log(MEDIAN_S), SPREAD, count), LONGEST_S).tolist()
    return seconds


def lines(costs: Sequence[Cost]) -> Iterator[str]:
    yield "| policy | jobs | read, s | futures | played, s | CPU time of playing, s |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: |"
    for one in costs:
        times = f"{one.read_s:.2f} | {one.draws} | {one.play_s:.1f} | {one.cpu_s:.1f}"
        yield f"| `{one.policy}` | {one.jobs:,} | {times} |"


def main() -> None:
    divert_native_output(sys.stderr.fileno())
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, nargs="*", default=(200, 2000))
    parser.add_argument("--policies", nargs="*", default=("motley", "max_min_fairness", "fifo"))
    parser.add_argument("--draws", type=int, default=32)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    with ProcessPoolExecutor(1, get_context("spawn"), max_tasks_per_child=1) as pool:
        runs = [pool.submit(cost, n, policy, given.draws, given.seed) for n in given.jobs for policy in given.policies]
        costs = [run.result() for run in runs]
    sys.stdout.write("\n".join(lines(costs)) + "\n")


if __name__ == "__main__":
    main()
