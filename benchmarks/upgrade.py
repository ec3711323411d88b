"""Time of the migrations with a million jobs: `python -m benchmarks.upgrade [--jobs 1000000]`.

The rows are written with the tables of the oldest migration that has engines as rows (`OLDEST`), on SQLite in a folder
of its own and on a private PostgreSQL; then `migrate` is timed, to the newest.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from datetime import datetime
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks.figures import Figure, read, table, write
from benchmarks.servers import postgresql

OLDEST = {"jobs_app": "0013_engine_rows", "cluster_app": "0005_engine_rows", "scheduler_app": "0007_default_policy"}
"""The state of 22 November 2026, before there was code of jobs, storage, archives and secrets."""
WHEN_ENDED = "2026-01-01 00:00:00+00:00"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--into", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.into:
        write(measure(options.jobs), options.into)
        return
    with tempfile.TemporaryDirectory(prefix="motley-upgrade-") as folder, postgresql() as url:
        figures = [
            figure
            for database in (f"sqlite:///{folder}/motley.sqlite3", url)
            for figure in _in_a_process(options.jobs, database, Path(folder))
        ]
    print(table(figures))


def _in_a_process(jobs: int, database: str, folder: Path) -> list[Figure]:
    environment = {**os.environ, "MOTLEY_VAR": str(folder), "MOTLEY_DATABASE": database}
    command = [sys.executable, "-m", "benchmarks.upgrade", "--jobs", str(jobs), "--into", str(folder / "figures.json")]
    subprocess.run(command, check=True, env=environment | {"DJANGO_SETTINGS_MODULE": "config.settings"})
    return read(folder / "figures.json")


def measure(jobs: int) -> list[Figure]:
    """Write the rows with the old tables, and migrate."""
    import django

    django.setup()
    from django.core.management import call_command
    from django.db import connection

    for app, name in OLDEST.items():
        call_command("migrate", app, name, verbosity=0)
    began = perf_counter()
    _fill(jobs)
    filled_s, began = perf_counter() - began, perf_counter()
    call_command("migrate", verbosity=0)
    took_s = perf_counter() - began
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM jobs_app_job")
        assert cursor.fetchone() == (jobs,)
    print(f"{connection.vendor}: filled in {filled_s:.0f} s, migrated in {took_s:.0f} s", flush=True)
    return [Figure(f"{connection.vendor}: migrate with {jobs:,} jobs, as many attempts and claims", took_s, "s")]


def _fill(jobs: int) -> None:
    """Ended jobs with an attempt, a claim and an event each: one of the historical models, copied by the database."""
    from django.db import connection
    from django.db.migrations.executor import MigrationExecutor

    executor = MigrationExecutor(connection)
    apps = executor.loader.project_state(list(executor.loader.applied_migrations)).apps
    job, attempt, claim, event = _examples(apps)
    number = "{there} + row_number() OVER ()"
    in_order = {"postgresql": f"lpad(to_hex({number}), 32, '0')::uuid", "sqlite": f"printf('%032x', {number})"}
    with connection.cursor() as cursor:
        there = 1
        while there < jobs:
            source = f"SELECT * FROM {job._meta.db_table} LIMIT {min(there, jobs - there)}"
            cursor.execute(_copy(job, f"({source}) x", {"id": in_order[connection.vendor].format(there=there)}))
            there *= 2
        of_jobs = f"{job._meta.db_table} j CROSS JOIN {{}} x WHERE j.id <> x.job_id"
        for model in (attempt, event):
            cursor.execute(_copy(model, of_jobs.format(model._meta.db_table), {"job_id": "j.id"}))
        of_attempts = f"{attempt._meta.db_table} a CROSS JOIN {claim._meta.db_table} x WHERE a.id <> x.attempt_id"
        cursor.execute(_copy(claim, of_attempts, {"attempt_id": "a.id"}))


def _copy(model: Any, source: str, columns: dict[str, str]) -> str:
    """Insert rows of the source (alias x) with these columns instead of theirs; a counter gets its next value."""
    names = [f.column for f in model._meta.concrete_fields if not f.primary_key or f.column in columns]
    quoted, values = (
        ", ".join(f'"{name}"' for name in names),
        ", ".join(columns.get(name, f'x."{name}"') for name in names),
    )
    return f"INSERT INTO {model._meta.db_table} ({quoted}) SELECT {values} FROM {source}"


def _examples(apps: Any) -> list[Any]:
    """Models of a job, an attempt, a claim and an event, of each of which there is one row."""
    at = datetime.fromisoformat(WHEN_ENDED)
    of = apps.get_model
    kind = of("cluster_app", "GpuType").objects.create(name="a100", memory_mib=81_920)
    node = of("cluster_app", "Node").objects.create(name="n1", gpu_type=kind, cpus=64, memory_mib=2**19)
    gpu = of("cluster_app", "Gpu").objects.create(node=node, index=0)
    team, owner = of("jobs_app", "Team").objects.create(name="t"), of("auth", "User").objects.create(username="u")
    whose = {"name": "job", "team": team, "owner": owner, "command": "true", "workload": "w", "tags": {"a": "b"}}
    when = {"created_at": at, "started_at": at, "finished_at": at, "state": "succeeded", "attempt_count": 1}
    job = of("jobs_app", "Job").objects.create(**whose, **when, gpus_min=1, gpus_max=1)
    ended = {
        "state": "ended",
        "outcome": "succeeded",
        "claimed_at": at,
        "started_at": at,
        "ended_at": at,
        "gone_at": at,
    }
    where = {"gpu_type": kind, "gpu_count": 1, "nodes": ["n1"], "engine": "local", "master_port": 20_000}
    attempt = of("jobs_app", "Attempt").objects.create(job=job, number=1, round_number=1, **ended, **where)
    released = {"held_from": at, "released_at": at}
    claim = of("scheduler_app", "GpuClaim").objects.create(attempt=attempt, gpu=gpu, **released)
    event = of("jobs_app", "JobEvent").objects.create(job=job, kind="submitted", at=at)
    return [type(row) for row in (job, attempt, claim, event)]


if __name__ == "__main__":
    main()
