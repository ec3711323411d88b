"""Copies of checkpoints with which new jobs begin: archives of the service, unpacked before their first attempt.

The copy is made when the job is submitted: what the other job saves later, or deletes, does not change it.
"""

import os
import stat
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

from django.conf import settings

from connections_app.agents.uploads import ARCHIVE, checkpoints_of, copy_slot, make_folder
from connections_app.checkpoints.listing import (
    FOLDER,
    Checkpoint,
    files_of,
    has_archive,
    read_checkpoints,
    whole_folder,
)
from connections_app.errors import CheckpointNotCopied
from connections_app.job_folder import open_file
from engines.protocol import EngineError, JobFile, OpenedFile
from jobs_app.errors import FilesDeleted, InvalidSpec
from jobs_app.measurement.training_progress import worth_at
from jobs_app.models import Job
from jobs_app.submission.admission import Admitted

ALL = "."
"""Name of everything in the checkpoint folder."""


class ChosenCheckpoint(NamedTuple):
    """A checkpoint of a job with which another is to begin; an empty name is all that the job has saved."""

    source: Job
    name: str
    step: int | None

    @property
    def columns(self) -> dict[str, Any]:
        """Columns of the job that begins with it."""
        begun = {} if self.step is None else {"continues_step": self.step, "step": self.step}
        return {"continues": self.source.pk, "continues_from": self.name, **begun}

    def has(self, entry: JobFile) -> bool:
        """Whether this entry of the checkpoint folder belongs to it; one that begins with a dot is unfinished."""
        return entry.name == self.name if self.name else not entry.name.startswith(".")

    def __str__(self) -> str:
        what = f"the checkpoint {self.name}" if self.name else "the checkpoints"
        return f"{what} of {self.source}" + ("" if self.step is None else f", step {self.step:,}")


def choose(source: Job, name: str) -> ChosenCheckpoint:
    """The checkpoint of this name; raises `CheckpointNotCopied` if there is none, `FilesDeleted`."""
    if source.files_deleted_at is not None:
        raise FilesDeleted(source.files_deleted_at)
    try:
        kept = [one for one in read_checkpoints(source) if one.kept]
    except EngineError as error:
        raise CheckpointNotCopied(str(error)) from error
    if not kept:
        raise CheckpointNotCopied(f"{source} has saved no checkpoint that is still there.")
    if name in ("", ALL):
        return ChosenCheckpoint(source, "", _latest_step(kept))
    found = next((one for one in kept if one.name == name), None)
    if found is None:
        there = ", ".join(one.name for one in kept[:5] if one.name) or "one archive of all"
        raise CheckpointNotCopied(f"{source} has no checkpoint {name!r} (any more). There is: {there}.")
    return ChosenCheckpoint(source, name, found.step)


def begun_with(chosen: ChosenCheckpoint, asked: Admitted) -> Admitted:
    """The job so that it begins with the checkpoint; of an array each task would need a copy of its own."""
    if asked.array is not None:
        text = "Tasks of an array cannot begin with a checkpoint of another job: submit one job."
        raise InvalidSpec.at("/array", "not_with_a_checkpoint", text)
    columns = asked.columns | chosen.columns | _work_done(chosen, asked.columns.get("batch_size") or {})
    note = "; ".join(filter(None, (asked.note, f"begins with {chosen}")))
    return replace(asked, columns=columns, note=note)


def _work_done(chosen: ChosenCheckpoint, limits: Mapping[str, int]) -> dict[str, float | None]:
    """What the steps up to the checkpoint were worth, in steps of this job's initial batch; None: it is not tuned."""
    if not limits or chosen.step is None:
        return {"worth_done": None}
    theirs = chosen.source.batch_size
    if not theirs:
        return {"worth_done": float(chosen.step)}  # its batch is not known: each step counts as one
    worth = worth_at(chosen.source, chosen.step)
    return {"worth_done": None if worth is None else worth * theirs["initial"] / limits["initial"]}


def _latest_step(kept: list[Checkpoint]) -> int | None:
    return max((one.step for one in kept if one.step is not None), default=None)


def drop_copy(job: UUID) -> None:
    """Remove the copy of a job that was not submitted."""
    checkpoints_of(job).unlink(missing_ok=True)


def without_job(archives: Sequence[Path]) -> list[Path]:
    """The archives of checkpoints whose job does not exist: a process was killed between a copy and its commit."""
    ids = {path: UUID(path.name.removesuffix(ARCHIVE)) for path in archives}
    known = set(Job.objects.filter(pk__in=ids.values()).order_by().values_list("pk", flat=True))
    return [path for path, job in ids.items() if job not in known]


@contextmanager
def copied(chosen: ChosenCheckpoint, job: UUID) -> Iterator[None]:
    """Put a copy where the first attempt of the job takes it from; it is removed if the block fails.

    Raises `CheckpointNotCopied`.
    """
    target = checkpoints_of(job)
    make_folder(target.parent)
    try:
        with copy_slot():
            _copy(chosen, target)
        yield
    except BaseException:
        drop_copy(job)
        raise


def _copy(chosen: ChosenCheckpoint, target: Path) -> None:
    try:
        if has_archive(chosen.source):  # replaced as a whole, never written to: a second name will do
            os.link(checkpoints_of(chosen.source.pk), target)
        else:
            _pack(chosen, target)
    except EngineError as error:
        raise CheckpointNotCopied(str(error)) from error
    except OSError as error:
        raise CheckpointNotCopied(f"The checkpoint could not be copied: {error}. Try again.") from error


def _pack(chosen: ChosenCheckpoint, target: Path) -> None:
    """Archive of the files, stored without compression: weights do not compress, and time is more than space."""
    sizes = _sizes(chosen)
    most, size = settings.MOTLEY_AGENT_CHECKPOINT_BYTES, sum(sizes.values())
    if size > most:
        text = f"The checkpoint has {size:,} bytes, more than the {most:,} that are copied"
        raise CheckpointNotCopied(f"{text} (MOTLEY_AGENT_CHECKPOINT_BYTES): start from its path instead.")
    with tarfile.open(target, "x:gz", compresslevel=0) as archive:
        for path in sizes:
            _add(archive, path, open_file(chosen.source, path))
    target.chmod(0o600)


def _sizes(chosen: ChosenCheckpoint) -> dict[str, int]:
    """Paths of the files below the job's folder and their sizes, without unfinished checkpoints."""
    files = dict(files_of(chosen.source, filter(chosen.has, whole_folder(chosen.source, FOLDER))))
    if not files:
        raise CheckpointNotCopied("The checkpoint has no files: choose another one.")
    if (other := next((path for path, file in files.items() if not file.is_file), None)) is not None:
        text = f"{other} is a link or a special file, which is not followed: the copy would lack it"
        raise CheckpointNotCopied(f"{text}. Begin with what it leads to, or start from its path instead.")
    return {path: file.size for path, file in files.items()}


def _add(archive: tarfile.TarFile, path: str, opened: OpenedFile) -> None:
    with os.fdopen(opened.descriptor, "rb") as file:
        before = os.fstat(file.fileno())
        if not stat.S_ISREG(before.st_mode):  # a connection to the server that has the file
            text = f"{path} is on a server, and the archive that it sends has not arrived"
            raise CheckpointNotCopied(f"{text}: try again when the page lists one archive.")
        member = tarfile.TarInfo(path.removeprefix(f"{FOLDER}/"))
        member.size, member.mtime, member.mode = opened.size, int(before.st_mtime), 0o644
        archive.addfile(member, file)
        after = os.fstat(file.fileno())
    if (before.st_mtime_ns, before.st_size) != (after.st_mtime_ns, after.st_size):
        raise OSError(f"{path} was written to meanwhile")
