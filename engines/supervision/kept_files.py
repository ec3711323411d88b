"""The part of an engine that is about files of attempts on its disk, the same for every engine that has a root."""

from collections.abc import Mapping, Sequence

from engines.supervision.discard import discard
from engines.supervision.disk import file_errors_explained
from engines.supervision.disk_usage import sizes
from engines.supervision.engine_root import EngineRoot


class KeptFiles:
    """Attempts, sizes and removal of what lies below the engine's root, as `engines.protocol.Engine` has them."""

    _root: EngineRoot

    def attempts(self) -> dict[int, bool]:
        return self._root.attempts()

    def sizes(self, jobs: Mapping[str, Sequence[int]]) -> dict[str, int]:
        with file_errors_explained(self._root.sizes):
            folders = {job: [*self._root.folders_of({job: of})] for job, of in jobs.items()}
            return sizes(folders, results=self._root.sizes)

    def discard(self, jobs: Mapping[str, Sequence[int]]) -> None:
        with file_errors_explained(self._root.aside):
            discard(self._root.folders_of(jobs), aside=self._root.aside)
