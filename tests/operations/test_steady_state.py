"""Weeks of jobs, gone through in half a minute: what comes in a day goes in a day, and every job is still found.

And a service without jobs, which looks twice a second whether there is something to do.
"""

import gzip
import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from pytest_django import DjangoAssertNumQueries, Settings

from accounting_app.models import DailyUsage
from benchmarks.year import KEEP, TABLES, Day, live
from connections_app import engine_registry as fleet
from jobs_app.job_archive import archive_files, archived_job
from jobs_app.models import Job, Team
from operations.loops import engine_turn, round_turn
from tests.service_lab import Lab

DAYS, JOBS_PER_DAY = 12, 6
SHORTER = 10
"""How many times shorter than in the benchmark everything is kept."""


@pytest.fixture
def days(db: None, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Day]]:
    settings.MOTLEY_ARCHIVE_ROOT = tmp_path / "archive"
    for name, kept in KEEP.items():
        setattr(settings, f"MOTLEY_KEEP_{name}", timedelta(days=kept / SHORTER))
    monkeypatch.setattr("benchmarks.year.NODES", 4)
    monkeypatch.setattr(fleet, "FACTORIES", dict(fleet.FACTORIES))
    yield list(live(DAYS, JOBS_PER_DAY, turns=2))
    fleet.engine_over.cache_clear()


def test_tables_do_not_grow_and_no_job_is_lost(days: list[Day]) -> None:
    settled = days[DAYS // 2 :]
    for name in TABLES:
        assert settled[-1].rows[name] <= 1.2 * settled[0].rows[name], name
    assert settled[-1].engine_attempts <= 1.2 * settled[0].engine_attempts
    assert settled[-1].rows["Job"] < DAYS * JOBS_PER_DAY / 2
    archived = {record["id"]: record["state"] for path in archive_files() for record in _records(path)}
    assert len(archived) + Job.objects.count() == DAYS * JOBS_PER_DAY
    assert set(archived.values()) == {Job.State.SUCCEEDED}
    user = Team.objects.get().members.get()
    assert all(archived_job(pk, user) for pk in archived)
    assert DailyUsage.objects.values("day").distinct().count() == DAYS


def _records(path: Path) -> Iterator[dict[str, str]]:
    with gzip.open(path, "rt") as file:
        yield from map(json.loads, file)


def test_turns_without_a_job_ask_the_database_little(
    lab: Lab, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    lab.node("n1", gpus=4)
    with lab.clock_stopped():  # or a round may be due again
        for _ in range(2):
            assert engine_turn("lab", lab.now)
            assert round_turn("lab", lab.now)
        with django_assert_max_num_queries(50):
            engine_turn("lab", lab.now)
        with django_assert_max_num_queries(15):
            round_turn("lab", lab.now)
