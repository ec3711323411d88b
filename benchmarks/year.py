"""Simulate a year of the service: `python -m benchmarks.year [--days 365] [--jobs 1000]`.

Each day jobs are submitted, placed by rounds, run by an engine in memory, and end; retention runs as it does live. What
is kept for months is kept for weeks here, so that most of the year shows the steady state. On SQLite, in a folder of
its own; with MOTLEY_DATABASE, on that database, which must be empty.
"""

import argparse
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING

from benchmarks.figures import Figure, table

if TYPE_CHECKING:  # the settings read the environment when they are imported
    from benchmarks.engine import InstantEngine
    from jobs_app.models import Team

KEEP = {"SNAPSHOTS": 2, "ROUNDS": 20, "MINUTES": 20, "FILES": 20, "CODE": 20, "EVENTS": 40, "JOBS": 40, "AUDIT": 40}
"""Days."""
SETTLED = 45
"""From this day on, as much goes as comes."""
TURNS_PER_DAY = 6
NODES, GPUS_PER_NODE = 40, 8
TABLES = ("Job", "Attempt", "JobEvent", "JobTag", "GpuClaim", "Round", "TeamUsage", "AuditEntry", "RetentionRun")


@dataclass(frozen=True)
class Day:
    """State at the end of a day."""

    number: int
    rows: dict[str, int]
    database_mib: float
    archive_mib: float
    engine_attempts: int
    round_s: float
    """Median of its turns: observe, decide, commit, dispatch."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days", type=int, default=365)
    parser.add_argument("--jobs", type=int, default=1000, help="submitted each day")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="motley-year-") as folder:
        os.environ |= {"MOTLEY_VAR": folder, "MOTLEY_LOG_LEVEL": "ERROR", "DJANGO_SETTINGS_MODULE": "config.settings"}
        os.environ |= {f"MOTLEY_KEEP_{name}": f"{days}d" for name, days in KEEP.items()}
        _set_up()
        days = []
        for day in live(options.days, options.jobs):
            days.append(day)
            if day.number % 20 == 0:
                print(f"day {day.number}: {day}", flush=True)
    print(table(figures(days)))


def _set_up() -> None:
    import django
    from django.core.management import call_command

    django.setup()
    call_command("migrate", verbosity=0)


def figures(days: list[Day]) -> list[Figure]:
    """The last fifth of the days beside the first fifth of those after everything has settled."""
    settled = [day for day in days if day.number >= SETTLED] or days
    some = max(len(settled) // 5, 1)
    early, late = settled[:some], settled[-some:]
    rows = [
        Figure(f"rows of {name}, late over early", max(day.rows[name] for day in late) / first, "times", 1.1)
        for name in TABLES
        if (first := max(day.rows[name] for day in early))
    ]
    return [
        *rows,
        Figure("size of the database, late over early", _last(late) / max(_last(early), 1e-9), "times", 1.1),
        Figure("a turn with a round, early", median(day.round_s for day in early), "s"),
        Figure("a turn with a round, late", median(day.round_s for day in late), "s"),
        Figure("size of the database at the end", days[-1].database_mib, "MiB"),
        Figure("size of the archive at the end", days[-1].archive_mib, "MiB"),
        Figure("attempts that the engine has files of, at the end", days[-1].engine_attempts, ""),
    ]


def _last(days: list[Day]) -> float:
    return max(day.database_mib for day in days)


def live(days: int, jobs_per_day: int, *, turns: int = TURNS_PER_DAY) -> Iterator[Day]:
    """Simulate the days one by one, with this many jobs and turns of the scheduler on each."""
    from django.utils import timezone

    today = timezone.now().astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    now = today + timedelta(days=1)  # at midnight: else a turn's hour may be in two days
    engine, team = _cluster(now)
    for number in range(1, days + 1):
        times = []
        for turn in range(turns):
            count = jobs_per_day * (turn + 1) // turns - jobs_per_day * turn // turns
            times.append(_turn(engine, team, now, count))
            now += timedelta(days=1) / turns
        yield _state(number, engine, median(times))


def _cluster(now: datetime) -> "tuple[InstantEngine, Team]":
    from django.contrib.auth.models import User

    from benchmarks.engine import InstantEngine
    from cluster_app.models import Engine, GpuType
    from cluster_app.services import add_node
    from connections_app import engine_registry as fleet
    from connections_app.register_machine import gpu_type_columns
    from jobs_app.models import Team

    kinds = [GpuType.objects.create(name=name, **gpu_type_columns(name)) for name in ("a100", "v100")]
    nodes = [f"node-{n}" for n in range(NODES)]
    for n, name in enumerate(nodes):
        add_node(name, kinds[n % 2], gpus=GPUS_PER_NODE, cpus=64, memory_mib=2**19)
    team = Team.objects.create(name="year")
    team.members.add(User.objects.create_user("year"))
    engine = InstantEngine(nodes, now)
    fleet.FACTORIES[Engine.Kind.LOCAL.value] = lambda _: engine
    fleet.engine_over.cache_clear()
    return engine, team


def _turn(engine: "InstantEngine", team: "Team", now: datetime, count: int) -> float:
    """Submit jobs, and let a round place them; an hour later all have ended. Returns the seconds of the turn."""
    from jobs_app.submission.batch import admitted_batch
    from jobs_app.submission.submit import enter_batch
    from operations import retention
    from operations.loops import both_turns

    retention.start_in_a_process = retention.run_for_the_scheduler  # at the time of this year, not of the clock
    specs = [{"name": f"job-{n}", "command": "true", "gpus": 1 + n % 2, "tags": {"n": str(n)}} for n in range(count)]
    if specs:
        enter_batch(admitted_batch({"jobs": specs}, team.members.get()))
    engine.now = now
    start = perf_counter()
    assert both_turns("year", now)
    seconds = perf_counter() - start
    engine.now = now + timedelta(hours=1)
    engine.ended |= dict.fromkeys(engine.running.keys() - engine.ended.keys(), 0)
    assert both_turns("year", engine.now)
    return seconds


def _state(number: int, engine: "InstantEngine", round_s: float) -> Day:
    from jobs_app.job_archive import archive_files

    return Day(
        number=number,
        rows=_rows(),
        database_mib=_database_mib(),
        archive_mib=sum(path.stat().st_size for path in archive_files()) / 2**20,
        engine_attempts=len(engine.running),
        round_s=round_s,
    )


def _rows() -> dict[str, int]:
    from django.apps import apps

    return {model.__name__: model._default_manager.count() for model in apps.get_models() if model.__name__ in TABLES}


def _database_mib() -> float:
    from django.db import connection

    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute("SELECT pg_database_size(current_database())")
            return float(cursor.fetchone()[0]) / 2**20
        return Path(connection.settings_dict["NAME"]).stat().st_size / 2**20


if __name__ == "__main__":
    main()
