"""Folders of jobs that have no attempt on this machine any more: told to the service, which says which are to go.

What a server keeps of a job that ended there goes when the service has discarded the job's files, however long this
machine was away at that time; so does what a crash between two removals has left.
"""

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from engines.agent.jobs_of_others import jobs_of_others
from engines.local.engine import LocalEngine
from engines.protocol import EngineError

MOST_TOLD = 500
"""In one message; the others follow in later ones."""
NOT_MEASURED = -1


class Part(NamedTuple):
    """Folders that follow each other by name."""

    sizes: Mapping[str, int]
    """Bytes, or `NOT_MEASURED`."""
    after: str
    """No folder lies between this name and the first."""
    is_last: bool
    """None lies after the last."""


class KeptJobs:
    """The folders, and their sizes as far as they were measured."""

    def __init__(self, folder: Path, engine: LocalEngine, jobs_here: Callable[[], Collection[str]]) -> None:
        """`jobs_here`: those that have attempts, or are about to."""
        self._folder, self._engine, self._jobs_here = folder / "engine" / "jobs", engine, jobs_here
        self._others = jobs_of_others(folder)
        self._sizes: dict[str, int] = {}
        self._told_last = ""

    def part(self) -> Part:
        """The next folders by name. Those of unknown or no size are measured: one may have been away before."""
        names, after = self._names(), self._told_last
        following = [name for name in names if name > after]
        if not following:
            following, after = names, ""
        part = following[:MOST_TOLD]
        is_last = len(part) == len(following)
        self._told_last = "" if is_last else part[-1]
        self._measure([name for name in part if not self._sizes.get(name)])
        return Part({name: self._sizes.get(name, NOT_MEASURED) for name in part}, after, is_last)

    def discard(self, jobs: Collection[str]) -> None:
        """Remove these folders, except of jobs that are here again."""
        for job in {*jobs} & {*self._names()} if jobs else ():
            self._engine.discard({job: []})
            self._sizes.pop(job, None)

    def _names(self) -> list[str]:
        if not self._folder.is_dir():
            return []
        here = {*self._jobs_here()} | self._others
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
