"""Files of jobs that ended: their sizes, limits of teams, and removal by the engines."""

import logging
from collections import defaultdict
from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from django.conf import settings
from django.db.models import BigIntegerField, Exists, F, OuterRef, QuerySet, Sum, Value, Window
from django.db.models.functions import Cast, Coalesce
from django.utils import timezone

from cluster_app.models import Engine
from connections_app.agents.uploads import discard as discard_received
from connections_app.checkpoints.copying import drop_copy
from connections_app.checkpoints.listing import has_archive
from connections_app.engine_registry import engine_named
from database.bulk_update import rewrite
from engines.protocol import EngineError
from jobs_app.models import Attempt, Job, JobDependency, Team

log = logging.getLogger(__name__)

MEASURED_AT_ONCE, ROWS_PER_WRITE = 2000, 200
SPARED = timedelta(days=1)
"""So long after its end the files of a job stay, however much its team has: somebody may want to look at them."""
NOT_SET = -1
GIB = 1 << 30


class FilesLeft(NamedTuple):
    """Rows that could not be removed, with the reasons."""

    rows: int
    why: str


def jobs_with_files(before: datetime) -> QuerySet[Job]:
    """Jobs that ended before the cutoff, have no processes, and are not needed by unfinished jobs."""
    runs = Attempt.objects.with_processes().filter(job=OuterRef("pk"))
    needed = JobDependency.objects.filter(parent=OuterRef("pk"), child__finished_at=None)
    return Job.objects.filter(~Exists(runs), ~Exists(needed), finished_at__lt=before, files_deleted_at=None)


def jobs_beyond_limits(now: datetime) -> QuerySet[Job]:
    """Jobs of each team with a limit that ended first, such that the files of the others are within it."""
    newer = Window(Sum("files_bytes"), partition_by="team", order_by=(F("finished_at").desc(), F("pk").desc()))
    ended = Job.objects.filter(finished_at__lt=now, files_deleted_at=None, files_bytes__gt=0)
    default = settings.MOTLEY_TEAM_FILES_GIB or NOT_SET
    limit = Cast(Coalesce("team__max_files_gib", Value(default)), BigIntegerField())
    limited = ended.annotate(limit_gib=limit).exclude(limit_gib=NOT_SET)
    beyond = limited.annotate(kept_bytes=newer).filter(kept_bytes__gt=F("limit_gib") * Value(GIB))
    return jobs_with_files(now - SPARED).filter(pk__in=beyond.values("pk"))


def add_up_files_of_teams() -> None:
    """Store what the files of each team's ended jobs take, as far as they were measured: pages do not add up a million
    jobs at each visit."""
    ended = Job.objects.filter(finished_at__isnull=False, files_deleted_at=None).order_by()
    taken = dict(ended.values_list("team").annotate(Sum("files_bytes", default=0)))
    teams = Team.objects.values_list("pk", flat=True)
    rewrite(Team, ("files_bytes",), {team: (taken.get(team, 0),) for team in teams})


def measure_files() -> None:
    """Store the sizes of the files of jobs that ended, each of which is measured once, at its engines.

    An engine measures in the background: what it does not know yet is stored by a later call.
    """
    unmeasured = jobs_with_files(timezone.now()).filter(files_bytes=None).order_by("-finished_at")
    jobs = list(unmeasured.values_list("pk", flat=True)[:MEASURED_AT_ONCE])
    _drop_unpacked_copies(jobs)
    sizes: dict[str, int] = dict.fromkeys(map(str, jobs), 0)
    for engine, wanted in _by_engine(Attempt.objects.filter(job__in=jobs)).items():
        found = _sizes_at(engine, wanted)
        sizes = {job: size + found.get(job, 0) for job, size in sizes.items() if job not in wanted or job in found}
    measured = [Job(pk=job, files_bytes=sizes[str(job)]) for job in jobs if str(job) in sizes]
    plain: QuerySet[Job] = QuerySet(Job)  # that of jobs would set `updated_at`, and lists of changes name the job
    plain.bulk_update(measured, ["files_bytes"], batch_size=ROWS_PER_WRITE)


def _drop_unpacked_copies(jobs: Collection[UUID]) -> None:
    """Remove the copies of checkpoints with which jobs began that an engine of the site has unpacked."""
    for job in Job.objects.filter(pk__in=jobs, continues__isnull=False).only("pk"):
        if not has_archive(job):
            drop_copy(job.pk)


def discard_files(jobs: QuerySet[Any]) -> FilesLeft:
    """Have the engines remove the files of the jobs; those of an engine that does not answer wait for the next time."""
    left: set[str] = set()
    faults: list[str] = []
    attempts = Attempt.objects.filter(job__in=jobs)
    for engine, wanted in _by_engine(attempts).items():
        try:
            engine_named(engine).discard(wanted)
        except EngineError as error:
            log.warning("files of jobs of the engine %s could not be deleted: %s", engine, error)
            left |= wanted.keys()
            faults.append(f"{engine}: {error}")
    _discard_of_deleted_engines(attempts)
    gone = jobs.exclude(pk__in=left)
    for job in gone.filter(continues__isnull=False).values_list("pk", flat=True):  # it may never have been launched
        drop_copy(job)
    gone.update(files_deleted_at=timezone.now())
    return FilesLeft(len(left), " ".join(faults))


def _discard_of_deleted_engines(attempts: QuerySet[Attempt]) -> None:
    """Remove what machines have sent to the service: their engine, which did so, may have been deleted since."""
    of_deleted = attempts.exclude(engine__in=Engine.objects.values("name"))
    wanted: dict[UUID, list[int]] = defaultdict(list)
    for job, attempt in of_deleted.values_list("job", "pk"):
        wanted[job].append(attempt)
    for job, those in wanted.items():
        discard_received(str(job), those)


def _sizes_at(engine: str, wanted: Mapping[str, list[int]]) -> Mapping[str, int]:
    try:
        return engine_named(engine).sizes(wanted)
    except EngineError as error:
        log.warning("files of jobs of the engine %s could not be measured: %s", engine, error)
        return {}


def _by_engine(attempts: QuerySet[Attempt]) -> dict[str, dict[str, list[int]]]:
    """Attempts by job and engine, for engines that exist."""
    wanted: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for name, job, attempt in attempts.values_list("engine", "job", "pk"):
        wanted[name][str(job)].append(attempt)
    known = Engine.objects.filter(name__in=wanted).values_list("name", flat=True)
    return {name: dict(wanted[name]) for name in known}
