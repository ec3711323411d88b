"""Archive of jobs: long after their end they leave the database for compressed JSON lines, one folder per month.

Ids are UUIDv7. The id of a job says in which month it was submitted, and the name of a file
(`2026-03/FIRST_LAST.jsonl.gz`) which ids it may hold; so a job is found without an index. A line is the job as REST
shows it, with its events.
"""

import gzip
import json
import logging
import os
import tempfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import groupby
from pathlib import Path
from typing import Any
from uuid import UUID

from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Exists, OuterRef, QuerySet
from rest_framework.utils.encoders import JSONEncoder

from jobs_app.models import Attempt, Job, JobArray, JobDependency, JobEvent
from jobs_app.serializers import EventAnswer, JobInFull, in_full
from web.rest.etags import etag_of

log = logging.getLogger(__name__)

SUFFIX, UNFINISHED = ".jsonl.gz", ".unfinished-"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
COMPRESSION = 6
COMMENTED = JobEvent.Kind.COMMENTED

Record = dict[str, Any]


def expired_jobs(before: datetime) -> QuerySet[Job]:
    """Jobs that ended before that day (UTC), of which nothing runs, no file is left and no unfinished job depends.

    Whole days, so that a file holds the jobs of a day and not those of an hour. The job with the newest event stays:
    whether a round is due is decided by comparison with that event.
    """
    newest = JobEvent.objects.filter(kind__in=JobEvent.WAKING).order_by("-pk").values_list("job", flat=True)[:1]
    day = before.replace(hour=0, minute=0, second=0, microsecond=0)
    runs = Attempt.objects.with_processes().filter(job=OuterRef("pk"))
    needed = JobDependency.objects.filter(parent=OuterRef("pk"), child__finished_at=None)
    ended = Job.objects.filter(finished_at__lt=day, files_deleted_at__isnull=False)
    return ended.filter(~Exists(runs), ~Exists(needed)).exclude(pk__in=list(newest))


def archive_jobs(jobs: QuerySet[Job]) -> None:
    """Write the jobs to the archive, then delete them, their attempts, claims and events.

    A process that is killed between the two leaves both; the jobs are written again the next time.
    """
    found = _write_all(jobs)
    arrays = {job.array_id for job in found if job.array_id}
    with transaction.atomic():
        same = Job.objects.filter(pk__in=[job.pk for job in found])
        if _versions(same) != ({job.pk: job.updated_at for job in found}, _comments_of(found)):
            _write_all(same)  # one was changed meanwhile, as by a new name; the files have the same names as before
        same.delete()
        JobArray.objects.filter(pk__in=arrays, jobs=None).delete()


def _versions(jobs: QuerySet[Job]) -> tuple[dict[UUID, datetime], set[int]]:
    """State to detect concurrent changes of finished jobs: update times and ids of comments. Locks the jobs."""
    changed = dict(jobs.select_for_update().values_list("pk", "updated_at"))
    return changed, set(JobEvent.objects.filter(job__in=changed, kind=COMMENTED).values_list("pk", flat=True))


def _comments_of(jobs: Sequence[Job]) -> set[int]:
    return {event.pk for job in jobs for event in job.events.all() if event.kind == COMMENTED}


def _write_all(jobs: QuerySet[Job]) -> list[Job]:
    related = jobs.select_related("team", "owner", "code").defer("code__diff").order_by("pk")
    found = list(related.prefetch_related("attempts__gpu_type", "needs", "events__actor"))
    for folder, members in groupby(found, lambda job: _folder_of(job.pk)):
        _write(folder, [_record(job) for job in members])
    return found


@dataclass(frozen=True)
class ArchivedJob:
    """A job of the archive as REST shows it, and its events, the oldest first."""

    whole: Record
    events: list[Record]


def archived_job(pk: UUID | str, user: User) -> ArchivedJob | None:
    """Find a job in the archive; None if it is not there, or the user is neither in its team nor staff."""
    record = _found(pk)
    return ArchivedJob(_shown(record), record["events"]) if record is not None and _may_see(record, user) else None


def archive_files() -> list[Path]:
    """All files of the archive, oldest first."""
    return sorted(settings.MOTLEY_ARCHIVE_ROOT.glob(f"*/*{SUFFIX}"))


def unfinished_archives() -> Iterator[Path]:
    """Files that are being written, or that a killed process has left."""
    root: Path = settings.MOTLEY_ARCHIVE_ROOT
    return root.glob(f"*/{UNFINISHED}*")


def _record(job: Job) -> Record:
    """Record of a job; `team_id` decides who may see it, because a name can be given to another team."""
    events = EventAnswer(job.events.all(), many=True).data
    return {"id": str(job.pk), "team_id": job.team_id, **in_full(job), "events": events}


def _shown(record: Mapping[str, Any]) -> Record:
    whole = {name: record.get(name) for name in JobInFull.Meta.fields} | {"archived": True}
    return whole | {"etag": etag_of(whole)}


def _may_see(record: Mapping[str, Any], user: User) -> bool:
    return user.is_staff or user.teams.filter(pk=record["team_id"]).exists()


# -- files ---------------------------------------------------------------------------------------------------------


def _folder_of(pk: UUID) -> Path:
    """Folder of the month in which the job was submitted, from the time in its id."""
    submitted = EPOCH + timedelta(milliseconds=pk.int >> 80)
    root: Path = settings.MOTLEY_ARCHIVE_ROOT
    return root / f"{submitted:%Y-%m}"


def _write(folder: Path, records: Sequence[Record]) -> None:
    """Write one file, synced and renamed: it has its name only when it is complete and on the disk."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    lines = "".join(json.dumps(record, cls=JSONEncoder) + "\n" for record in records)
    file = tempfile.NamedTemporaryFile(dir=folder, prefix=UNFINISHED, delete=False)  # noqa: SIM115 - it outlives this block
    try:
        with file:
            file.write(gzip.compress(lines.encode(), COMPRESSION, mtime=0))
            file.flush()
            os.fsync(file.fileno())
        Path(file.name).replace(folder / f"{records[0]['id']}_{records[-1]['id']}{SUFFIX}")
    except BaseException:
        Path(file.name).unlink(missing_ok=True)
        raise
    for parent in (folder, folder.parent):
        _sync(parent)


def _sync(folder: Path) -> None:
    """Make new names in the folder last through a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _found(pk: UUID | str) -> Record | None:
    with suppress(ValueError, OverflowError):  # not an id, or not one of this service: its time is not in our calendar
        wanted = UUID(str(pk))
        beginning = json.dumps({"id": str(wanted)})[:-1].encode()
        for line in _lines(_folder_of(wanted), str(wanted)):
            if line.startswith(beginning):
                record: Record = json.loads(line)
                return record
    return None


def _lines(folder: Path, pk: str) -> Iterator[bytes]:
    """Lines of the files whose range of ids includes this one."""
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        first, last = path.name.removesuffix(SUFFIX).split("_")
        if first <= pk <= last:
            yield from _readable_lines(path)


def _readable_lines(path: Path) -> Iterator[bytes]:
    """Lines of a file; of a damaged one those before the fault."""
    try:
        with gzip.open(path) as file:
            yield from file
    except (OSError, EOFError, zlib.error):
        log.exception("the archive of jobs %s is damaged: some of its jobs are not found", path)
