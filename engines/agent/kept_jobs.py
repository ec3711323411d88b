"""Folders of jobs that have no attempt on this machine any more: told to the service, which says which are to go.

What a server keeps of a job that ended there goes when the service has discarded the job's files, however long this
machine was away at that time; so does what a crash between two removals has left.
"""

from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from uuid import UUID

from engines.local.engine import LocalEngine
from engines.protocol import EngineError

MOST_TOLD = 500
"""In one message; the others follow in later ones."""
NOT_MEASURED = -1


class KeptJobs:
    """The folders, and their sizes as far as they were measured."""

    def __init__(self, folder: Path, engine: LocalEngine, jobs_here: Callable[[], Collection[str]]) -> None:
        """`jobs_here`: those that have attempts, or are about to."""
        self._folder, self._engine, self._jobs_here = folder / "engine" / "jobs", engine, jobs_here
        self._sizes: dict[str, int] = {}
        self._told_last = ""

    def part(self) -> dict[str, int]:
        """The next of them by name, each with its bytes, or `NOT_MEASURED`; what has no size is measured meanwhile."""
        names = self._names()
        after = [name for name in names if name > self._told_last] or names
        part = after[:MOST_TOLD]
        self._told_last = part[-1] if part else ""
        self._measure([name for name in part if name not in self._sizes])
        return {name: self._sizes.get(name, NOT_MEASURED) for name in part}

    def discard(self, jobs: Collection[str]) -> None:
        """Remove these folders, except of jobs that are here again."""
        for job in {*jobs} & {*self._names()}:
            self._engine.discard({job: []})
            self._sizes.pop(job, None)

    def _names(self) -> list[str]:
        if not self._folder.is_dir():
            return []
        here = self._jobs_here()
        return sorted(path.name for path in self._folder.iterdir() if path.name not in here and _is_job(path.name))

    def _measure(self, jobs: Collection[str]) -> None:
        """Take what was measured, and have the rest measured by a process in the background.

        On a full disk that fails: the service must hear the condition all the same, or nothing is ever discarded.
        """
        with suppress(OSError, EngineError):
            self._sizes |= self._engine.sizes(dict.fromkeys(jobs, ()))


def _is_job(name: str) -> bool:
    with suppress(ValueError):
        return str(UUID(name)) == name
    return False
