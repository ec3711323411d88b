"""Files that no row names: what a process leaves that is killed between writing a file and its commit.

A file is removed once it has not changed for a day: what is being written changes, and its row is committed within
minutes. What is older than the database itself belongs to another one, with which the folder was used before.
"""

import logging
import random
import shutil
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path

from django.db.migrations.recorder import MigrationRecorder
from django.db.models import Min

from connections_app.agents.uploads import stored_checkpoints, stored_logs, unfinished_checkpoints
from connections_app.checkpoints.copying import without_job
from connections_app.models import AgentAttempt, EngineProbe
from jobs_app.code.storage import archives_in_folder, delete_unless_stored, unfinished_uploads, without_row
from jobs_app.job_archive import unfinished_archives
from jobs_app.models import Attempt
from operations.backup import unfinished_backups
from operations.job_file_retention import FilesLeft

log = logging.getLogger(__name__)

SAFE_AGE = timedelta(days=1)
"""Longer than any upload, copy or backup takes."""
FILES_PER_BATCH = 500
"""To look at so many takes some milliseconds, and one query."""


@dataclass(frozen=True)
class FileRule:
    """One kind of file: where they are, which of them nothing needs, and how one is removed."""

    label: str
    files: Callable[[], Iterator[Path]]
    unneeded: Callable[[Sequence[Path]], Collection[Path]]
    """Those of the given files that no row names."""
    remove: Callable[[Path], object]
    setting: str = ""
    kept_for: timedelta = SAFE_AGE

    def count_expired(self, now: datetime) -> int:
        return sum(len(batch) for batch in self._expired(now))

    def delete_in_batches(self, now: datetime) -> Iterator[tuple[int, FilesLeft]]:
        """Remove the expired files; yields how many each batch has, and those that are left."""
        for batch in self._expired(now):
            yield len(batch), self._remove_all(batch)

    def _expired(self, now: datetime) -> Iterator[Collection[Path]]:
        """Batches of the expired files, of which some are empty.

        In no order: a run whose time is over has looked at others than the one before it.
        """
        since, before = _database_made_at(), now - self.kept_for
        files = list(self.files())
        random.shuffle(files)
        found = iter(files)
        while batch := list(islice(found, FILES_PER_BATCH)):
            yield self.unneeded([path for path in batch if _is_unchanged(path, since=since, before=before)])

    def _remove_all(self, files: Collection[Path]) -> FilesLeft:
        faults = []
        for path in files:
            try:
                self.remove(path)
            except OSError as error:
                log.warning("%s could not be removed: %s", path, error)
                faults.append(str(error))
        return FilesLeft(len(faults), " ".join(faults[:3]))


def _database_made_at() -> datetime:
    made = MigrationRecorder.Migration.objects.aggregate(at=Min("applied"))["at"]
    return made or datetime.now(UTC)


def _is_unchanged(path: Path, *, since: datetime, before: datetime) -> bool:
    """Whether a file is old is said by its inode: a copy may be a second name of an archive, whose content is older."""
    with suppress(FileNotFoundError):
        status = path.lstat()
        return status.st_ctime < before.timestamp() and status.st_mtime >= since.timestamp()
    return False


def _unfinished() -> Iterator[Path]:
    for files in (unfinished_checkpoints, unfinished_uploads, unfinished_archives, unfinished_backups):
        yield from files()


def _delete(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _without_attempt(folders: Sequence[Path]) -> list[Path]:
    """Those of attempts that are gone, or of jobs whose files were deleted; tests of engines have negative numbers."""
    of = {int(path.name): path for path in folders}
    kept = Attempt.objects.filter(pk__in=of, job__files_deleted_at=None).values_list("pk", flat=True)
    at_agents = AgentAttempt.objects.filter(attempt__in=of).values_list("attempt", flat=True)
    probes = EngineProbe.objects.filter(pk__in=[-one for one in of]).values_list("pk", flat=True)
    needed = {*kept, *at_agents, *(-pk for pk in probes)}
    return [path for attempt, path in of.items() if attempt not in needed]


FILE_RULES = (
    FileRule("archives of checkpoints of no job", stored_checkpoints, without_job, _delete),
    FileRule("logs of machines that no attempt has", stored_logs, _without_attempt, _delete),
    FileRule("files of code without a record", archives_in_folder, without_row, delete_unless_stored),
    FileRule("unfinished uploads, archives and backups", _unfinished, list, _delete),
)
