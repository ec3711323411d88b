"""Rounds with 100,000 active jobs on 100,000 GPUs of ten types, with 1,000,000 finished jobs beside them."""

import gc
import resource
from statistics import median

from benchmarks.a_round import Bench
from benchmarks.figures import Figure, percentile
from benchmarks.filling import GIANT, fill
from benchmarks.measure_pages import visit_ms, visitor_named
from benchmarks.measure_rounds import STEPS

JOBS = GPUS = 100_000
FINISHED = 1_000_000
REPLACED = 1_000
"""Jobs that end and are replaced between two rounds."""
ROUNDS = 3
TIMES = 20
"""Visits of each page, by each visitor."""
PAGES = {"Jobs": "/jobs", "Jobs of a team": f"/jobs?team={GIANT}", "Cluster": "/cluster", "Home": "/"}
SPEEDS = {
    "k80": 0.25,
    "m60": 0.3,
    "p4": 0.4,
    "p100": 1.0,
    "t4": 0.9,
    "v100": 2.0,
    "a10": 1.8,
    "l4": 1.7,
    "a100": 4.0,
    "h100": 8.0,
}


def measure() -> list[Figure]:
    fill(FINISHED, unfinished=0, gpus=0)
    bench = Bench(jobs=JOBS, gpus=GPUS, seed=0, all_different=False, speeds=SPEEDS)
    bench.replaced = REPLACED / JOBS
    first = bench.round()
    rounds = [bench.round() for _ in range(ROUNDS)]
    gc.freeze()  # the pages are served by another process, whose collector does not walk through the rows of rounds
    peak_gib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    what = "100,000 jobs on 100,000 GPUs"
    return [
        Figure(f"{what}: first round, which starts all that fit", first["end to end"], "s"),
        Figure(f"{what}: round, end to end", median(each["end to end"] for each in rounds), "s", 25),
        Figure(f"{what}: processing 1,000 ends and starts", median(each["changes heard"] for each in rounds), "s", 2),
        *(Figure(f"{what}: {step}", median(each[step] for each in rounds), "s") for step in STEPS),
        *(_page(what, page, path) for page, path in PAGES.items()),
        Figure(f"{what}: memory of the process, at most", peak_gib, "GiB", 4),
    ]


def _page(what: str, page: str, path: str) -> Figure:
    times = []
    for username in ("staff", "of-giant", "of-small"):
        visitor = visitor_named(username)
        visit_ms(visitor, path)
        times += [visit_ms(visitor, path) for _ in range(TIMES)]
    return Figure(f"{what}: page {page}, p95", percentile(times, 95), "ms", 300)
