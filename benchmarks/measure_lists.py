"""Lists of a million jobs: how long each takes, for which visitor, and by which plan."""

import gc
import re
from datetime import timedelta
from pathlib import Path

from django.utils import timezone

from benchmarks.figures import Figure, percentile
from benchmarks.filling import fill
from benchmarks.lists import LISTS, Reader
from jobs_app.models import Job

JOBS, TIMES = 1_000_000, 3
DEPTHS = (0.5, 0.05)
"""From the middle, and from near the end."""
KEPT = ("staff", "of-several")
"""Whose plans are written down."""
RECENT, PAST = timedelta(hours=2), timedelta(days=300)
SCANS_ALL_JOBS = re.compile(r"Seq Scan on jobs_app_job\b")


def measure(plans: Path | None) -> list[Figure]:
    """Write the plans there, if anywhere."""
    readers = _readers(fill(JOBS))
    for reader in readers.values():
        list(reader.times([]))  # connections and caches are there
    gc.collect()
    gc.freeze()  # as in a web process that has started: see config/wsgi.py
    times = {
        (user, name): [t for _ in range(TIMES) for t in reader.times(asked)]
        for user, reader in readers.items()
        for name, asked in LISTS.items()
    }
    worst = max(times, key=lambda key: percentile(times[key], 95))
    found = {(user, name): reader.plans(asked) for user, reader in readers.items() for name, asked in LISTS.items()}
    scans = [key for key, of_list in found.items() if any(SCANS_ALL_JOBS.search(plan) for plan in of_list)]
    if plans:
        plans.write_text("\n".join(_chapter(*key, found[key]) for key in found if key[0] in KEPT))
    return [
        Figure("lists, 1,000,000 jobs: p99", percentile([t for each in times.values() for t in each], 99), "ms", 100),
        Figure(f"lists: p95 of the slowest ({worst[1]}; {worst[0]})", percentile(times[worst], 95), "ms", 100),
        Figure(f"lists: plans that scan all jobs, of {len(found)}", len(scans), "plans", 0),
    ]


def _readers(tokens: dict[str, str]) -> dict[str, Reader]:
    now = timezone.now()
    moments = {"recent": f"{now - RECENT:%FT%TZ}", "past": f"{now - PAST:%FT%TZ}"}
    depths = [_job_at(depth) for depth in DEPTHS]
    return {user: Reader(token, moments, depths) for user, token in tokens.items()}


def _job_at(depth: float) -> str:
    at = timezone.now() - timedelta(seconds=30 * JOBS * (1 - depth))
    return str(Job.objects.filter(created_at__lte=at).order_by("-created_at").values_list("pk", flat=True)[0])


def _chapter(user: str, name: str, plans: list[str]) -> str:
    return "\n".join([f"== {name}, seen by {user}", *(f"{plan}\n" for plan in plans)])
