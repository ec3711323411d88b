"""Checkpoints of a job: what is in its checkpoint folder, joined with what it reported.

A checkpoint is a file or a folder directly in the checkpoint folder; a report without one was replaced or deleted. Of
a job on a machine that joined the service has one archive of all of them.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from cluster_app.models import WITH_AGENTS, Engine
from connections_app.agents.uploads import checkpoints_of
from connections_app.job_folder import list_folder
from engines.job_files import MOST_LISTED
from engines.protocol import EngineError, JobFile, NoSuchFile
from jobs_app.measurement.checkpoint_history import MadeCheckpoint, reported_checkpoints
from jobs_app.measurement.progress_curves import PointOfTime, read_curve
from jobs_app.models import Job

FOLDER = "checkpoints"
MOST_FILES = 10_000
"""Of a checkpoint, folders counted: what has more is not measured, and not copied."""
SLACK = timedelta(seconds=2)
"""Between the time of a file and that of the report about it."""
STEP_IN_NAME = re.compile(r"(?:steps?|checkpoint|ckpt|iter(?:ation)?)[=_-]?0*(\d{1,18})(?!\d)", re.IGNORECASE)
"""As Transformers, Lightning, DeepSpeed and Megatron name them: checkpoint-500, step=500.ckpt, global_step500."""


class TooManyFiles(EngineError):
    """A folder has more names than are listed, or a checkpoint more files than are counted."""


class Saved(NamedTuple):
    """A file or folder directly in the checkpoint folder; `name` is empty for an archive of all of them."""

    name: str
    size: int | None
    """In bytes; None: it has too many files to be measured."""
    changed_at: datetime


class Checkpoint(NamedTuple):
    """A checkpoint that is there, or that the job reported."""

    name: str
    """Of the file or folder; empty: not kept, or an archive of all."""
    kept: bool
    step: int | None
    made_at: datetime
    size: int | None
    """In bytes; None: it is not kept, or has too many files to be measured."""
    took_s: float | None = None
    attempt: int | None = None
    loss: float | None = None


def read_checkpoints(job: Job) -> list[Checkpoint]:
    """All checkpoints of the job that are known, the newest first. Raises `EngineError`."""
    return joined(saved_by(job), reported_checkpoints(job.pk), read_curve(job.pk))


def saved_by(job: Job) -> list[Saved]:
    """What is in the checkpoint folder of the job, or the archive of it. Raises `EngineError`."""
    if job.files_deleted_at is not None:
        return []
    if has_archive(job):
        status = checkpoints_of(job.pk).stat()
        return [Saved("", status.st_size, datetime.fromtimestamp(status.st_mtime, UTC))]
    try:
        entries = whole_folder(job, FOLDER)
    except NoSuchFile:
        return []
    finished = [entry for entry in entries if not entry.name.startswith(".")]
    return [_measured(job, entry) for entry in finished if entry.is_folder or entry.is_file]  # no links


def has_archive(job: Job) -> bool:
    """Whether the service has the checkpoints as an archive: the job's last attempt was not at an engine of the site.

    Also before its first attempt, where it continues another job.
    """
    last = job.attempts.exclude(launched_at=None).order_by("-number").values_list("engine", flat=True).first()
    is_elsewhere = last is None or Engine.objects.filter(name=last, kind__in=WITH_AGENTS).exists()
    return is_elsewhere and checkpoints_of(job.pk).exists()


def whole_folder(job: Job, path: str) -> list[JobFile]:
    """Content of a folder of the job; raises `TooManyFiles` where a listing leaves names out."""
    entries = list_folder(job, path)
    if len(entries) >= MOST_LISTED:
        text = f"The folder {path} has {MOST_LISTED:,} files or more, too many to be listed as checkpoints or copied"
        raise TooManyFiles(f"{text}: divide them among folders, or delete those that are not needed any more.")
    return entries


def files_of(job: Job, entries: Iterable[JobFile]) -> Iterator[tuple[str, JobFile]]:
    """These entries of the checkpoint folder and all below them, but folders, with their paths; links and pipes, too.

    Raises `EngineError`.
    """
    left, count = [(f"{FOLDER}/{entry.name}", entry) for entry in entries], 0
    while left:
        path, entry = left.pop()
        count += 1
        if count > MOST_FILES:
            raise TooManyFiles(f"There are more than {MOST_FILES:,} files, too many to be measured or copied.")
        if entry.is_folder:
            left += [(f"{path}/{below.name}", below) for below in whole_folder(job, path)]
        else:
            yield path, entry


def _measured(job: Job, entry: JobFile) -> Saved:
    try:
        files = [file for _, file in files_of(job, [entry]) if file.is_file]
    except TooManyFiles:
        return Saved(entry.name, None, entry.modified_at)
    except NoSuchFile:  # deleted meanwhile
        files = []
    changed = max((file.modified_at for file in files), default=entry.modified_at)
    return Saved(entry.name, sum(file.size for file in files), changed)


def joined(
    saved: Sequence[Saved], reported: Sequence[MadeCheckpoint], curve: Sequence[PointOfTime]
) -> list[Checkpoint]:
    """What was saved with the report about it, and reports of what is not there any more; the newest first."""
    found, kept = [], set()
    for one in saved:
        report = _report_of(one, reported)
        kept.add(report)
        step = _step_of(one, report, curve)
        told = (report.took_s, report.attempt, report.loss) if report else (None, None, None)
        found.append(Checkpoint(one.name, True, step, one.changed_at, one.size, *told))
    gone = [
        Checkpoint("", False, one.step, one.at, None, one.took_s, one.attempt, one.loss)
        for one in reported
        if one not in kept
    ]
    return sorted([*found, *gone], key=lambda one: one.made_at, reverse=True)


def _report_of(saved: Saved, reported: Sequence[MadeCheckpoint]) -> MadeCheckpoint | None:
    """The report during whose save the file was written, or of an archive the last one before it was packed."""
    for one in reversed(reported):
        began = one.at - timedelta(seconds=one.took_s or 0) - SLACK
        if began <= saved.changed_at and (saved.changed_at <= one.at + SLACK or not saved.name):
            return one
    return None


def _step_of(saved: Saved, report: MadeCheckpoint | None, curve: Sequence[PointOfTime]) -> int | None:
    """As its name says, else its report, else the last progress before it."""
    if named := STEP_IN_NAME.search(saved.name):
        return int(named[1])
    before = [point.step for point in curve if point.at <= saved.changed_at]
    return report.step if report else before[-1] if before else None
