"""Files and checkpoints of a job, and archives of code."""

from typing import TypedDict


class JobFile(TypedDict):
    name: str
    kind: str
    """`folder`, `file`, or `other`: a link or a device, which is not followed."""
    size: int
    modified_at: str


class SavedCheckpoint(TypedDict):
    name: str
    """Of the file or folder; empty: it is not kept, or an archive of all."""
    kept: bool
    step: int | None
    made_at: str
    size: int | None
    """In bytes; None: it is not kept, or has too many files to be measured."""
    took_s: float | None
    attempt: int | None
    loss: float | None


class ContinuedBy(TypedDict):
    """A job that began with a checkpoint of this one."""

    id: str
    name: str
    continues_from: str
    continues_step: int | None


class SavedCheckpoints(TypedDict):
    checkpoints: list[SavedCheckpoint]
    continued_by: list[ContinuedBy]


class JobFolder(TypedDict):
    path: str
    files: list[JobFile]
    complete: bool
    """False: the folder has more names than are listed."""


class CodeArchive(TypedDict):
    """Archive of code; `stored` is false when its file was deleted because no job had used it lately."""

    digest: str
    size_bytes: int
    unpacked_bytes: int
    files: int
    commit: str
    branch: str
    stored: bool
    uploaded_by: str | None
    created_at: str
    used_at: str


class CodeArchiveDetail(CodeArchive):
    diff: str
