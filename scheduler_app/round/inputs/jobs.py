"""Rows of jobs and attempts, with their JSON columns parsed; equal texts are parsed once."""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import lru_cache, partial
from typing import Any, TypeVar
from uuid import UUID

from django.db.models import F, Q, TextField
from django.db.models.functions import Cast

from accounting_app.fairness.budgets import TeamBudget, used_up
from cluster_app.models import WITH_AGENTS, Engine
from cluster_app.replica_size import GpusPerReplica
from cluster_app.storage import KEPT, places_of
from jobs_app.models import Attempt, Job
from jobs_app.models.job import JobArray, JobQuerySet
from jobs_app.submission.volunteers import volunteers_now
from scheduler_app.round.inputs.job_row import DeclaredRates, DeclaredSensitivity, JobRow
from scheduler_app.round.inputs.rows import AttemptRow, NodeRow, UnreadableJob
from scheduler_app.round.restart_times import KnownRestarts, read_restarts

CACHE_SIZE = 50_000
"""Parsed documents in each cache; most jobs of a round were in the previous one."""


@lru_cache(CACHE_SIZE)
def _document(text: str) -> Any:
    """Parse a JSON text; the result is shared and must not be changed."""
    return json.loads(text)


@lru_cache(CACHE_SIZE)
def _replica(text: str) -> GpusPerReplica:
    return GpusPerReplica.of(json.loads(text))


@lru_cache(CACHE_SIZE)
def _sensitivity(text: str) -> DeclaredSensitivity | None:
    return DeclaredSensitivity.of(json.loads(text))


@lru_cache(CACHE_SIZE)
def _declared(text: str) -> DeclaredRates:
    return DeclaredRates.of(json.loads(text))


Parsers = Mapping[str, Callable[[str], Any]]
"""JSON column → its parser."""
ATTEMPT_DOCUMENTS: Parsers = {"nodes": _document}
JOB_DOCUMENTS: Parsers = {
    "gpus_per_replica": _replica,
    "mounts": _document,
    "gpu_types": _document,
    "sensitivity": _sensitivity,
    "rates": _declared,
    "batch_size": _document,
}
EMPTY: Mapping[str, Any] = {
    "nodes": [],
    "gpus_per_replica": GpusPerReplica.of({}),
    "mounts": [],
    "gpu_types": [],
    "sensitivity": None,
    "rates": DeclaredRates.of({}),
    "batch_size": {},
    "volunteers": (),
}
"""JSON column → what stands for one that cannot be read."""
OF_OTHERS: Mapping[Any, Any] = {
    "at_a_time": "array__at_a_time",
    "restart_s": "restore_s",
    "array_tasks": F("array__end") - F("array__start") + 1,
    "volunteers": volunteers_now(),
}
"""Columns of a job's row that have another name, that its array has, or that its team may narrow."""
Row = TypeVar("Row", AttemptRow, JobRow)


def live_attempts() -> dict[int, AttemptRow]:
    rows = Attempt.objects.live().values_list(*_columns(AttemptRow, ATTEMPT_DOCUMENTS))
    return {row.id: row for row in _parsed(AttemptRow, ATTEMPT_DOCUMENTS, rows, _leave_out)}


def _leave_out(row: AttemptRow, error: Exception) -> None:
    pass


def round_jobs(
    now: datetime, nodes: Sequence[NodeRow], begin_by: datetime, budgets: Mapping[int, TeamBudget]
) -> tuple[list[JobRow], dict[UUID, UnreadableJob]]:
    """Jobs of the round, and those whose columns cannot be read; no waiting ones of teams whose budget is used up.

    Whose machines they may run on matters only where not all nodes are the site's.
    """
    unreadable: dict[UUID, UnreadableJob] = {}
    schedulable = Job.objects.schedulable(now, begin_by=begin_by)
    if closed := [team for team, budget in used_up(budgets).items() if budget.resets_at > begin_by]:
        schedulable = schedulable.exclude(team__in=closed)
    waiting = Q(pk__in=schedulable.values("pk"))
    jobs = read_job_rows(Job.objects.filter(waiting | Q(state__in=Job.ACTIVE)), nodes, unreadable)
    of_site_alone = not nodes or KEPT in _everywhere(nodes)
    return (jobs if of_site_alone else _with_bound_ones(jobs)), unreadable


def read_job_rows(jobs: JobQuerySet, nodes: Sequence[NodeRow], unreadable: dict[UUID, UnreadableJob]) -> list[JobRow]:
    """The rows of these jobs in the order of submission; those whose columns cannot be read are noted."""
    documents: dict[str, Callable[[str], Any]] = {
        **JOB_DOCUMENTS,
        "volunteers": partial(_places_beyond, _everywhere(nodes)),
    }
    fields = [OF_OTHERS.get(name, name) for name in _columns(JobRow, JOB_DOCUMENTS)]

    def note(row: JobRow, error: Exception) -> None:
        unreadable[row.id] = UnreadableJob(row, error)

    rows = list(_parsed(JobRow, documents, jobs.order_by("id").values_list(*fields), note))
    return _with_sizes_of_sparse_arrays(with_restart_times(rows, read_restarts())) if rows else rows


def _with_sizes_of_sparse_arrays(rows: list[JobRow]) -> list[JobRow]:
    """The jobs, with the number of tasks of arrays that leave out indices; read once an array, lists may be long."""
    arrays = {row.array_id for row in rows if row.array_id}
    sparse = JobArray.objects.filter(pk__in=arrays, indices__isnull=False) if arrays else JobArray.objects.none()
    listed = sparse.values_list("pk", "indices")
    sizes = {pk: len(indices) for pk, indices in listed if isinstance(indices, list)}  # or somebody has written past us
    return [row._replace(array_tasks=sizes[row.array_id]) if row.array_id in sizes else row for row in rows]


def with_restart_times(rows: Iterable[JobRow], known: KnownRestarts) -> list[JobRow]:
    """The jobs, what each declares of restarts replaced where some of its workload were measured."""
    return [row._replace(restart_s=_restart_s(row, known)) for row in rows]


def _restart_s(row: JobRow, known: KnownRestarts) -> float:
    return known.of(row.team_id, row.workload, row.restart_s, job=row.id, gpu_types=row.gpu_types).seconds


def _everywhere(nodes: Sequence[NodeRow]) -> frozenset[str]:
    """Offers that all nodes have."""
    return frozenset.intersection(*(node.storage for node in nodes)) if nodes else frozenset()


def _places_beyond(everywhere: frozenset[str], volunteers: str) -> tuple[str, ...]:
    return tuple(place for place in places_of(volunteers) if place not in everywhere)


def _with_bound_ones(jobs: Sequence[JobRow]) -> list[JobRow]:
    """The jobs; those that have run at an engine without agents are bound to such ones, where their files are."""
    of_site = Attempt.objects.filter(started_at__isnull=False, job__in=Job.objects.unfinished())
    agents = Engine.objects.filter(kind__in=WITH_AGENTS).values("name")
    bound = set(of_site.exclude(engine__in=agents).order_by().values_list("job", flat=True).distinct())
    return [job._replace(volunteers=(KEPT,)) if job.id in bound else job for job in jobs]


def _columns(kind: type[Row], documents: Collection[str]) -> list[Any]:
    """The columns of a row type, JSON columns cast to text."""
    return [Cast(name, TextField()) if name in documents else name for name in kind._fields]


def _parsed(
    kind: type[Row], documents: Parsers, rows: Iterable[Sequence[Any]], note: Callable[[Row, Exception], None]
) -> Iterator[Row]:
    """Rows with their JSON columns parsed; equal texts are parsed once. Those that cannot be read are noted instead."""
    places = [(name, kind._fields.index(name), parse) for name, parse in documents.items()]
    for row in rows:
        values, fault = list(row), None
        for name, place, parse in places:
            try:
                values[place] = parse(values[place])
            except Exception as error:  # a row that somebody has written past the service must not stop all others
                values[place], fault = EMPTY[name], error
        if fault is None:
            yield kind(*values)
        else:
            note(kind(*values), fault)
