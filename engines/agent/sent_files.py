"""Files of each attempt's checkpoints that the service has: their names on disk, and their stamps in memory.

A job that was restored from an archive, or whose agent was started again, has an archive at the service all the same.
"""

from collections.abc import Set as AbstractSet
from pathlib import Path

from engines.agent.checkpoint_snapshot import Stamps
from engines.attempt_files import AttemptFolder, read_json, write_json


class SentFiles:
    """Record of the checkpoint files that the service has of the attempts in this folder."""

    def __init__(self, attempts: Path) -> None:
        self._attempts = attempts
        self._stamps: dict[int, Stamps] = {}

    def stamps(self, attempt: int) -> Stamps | None:
        """Stamps of the files in the last archive that arrived completely; None: not known."""
        return self._stamps.get(attempt)

    def names(self, attempt: int) -> AbstractSet[str] | None:
        """Names of the files that the service may have; None: not known, the job was restored from an archive."""
        folder = AttemptFolder(self._attempts / str(attempt))
        names = read_json(_names_in(folder))
        if names is not None:
            return frozenset(names)
        launch = folder.read_launch()
        return None if launch is None or "checkpoints" in launch else frozenset()

    def begin(self, attempt: int, names: AbstractSet[str]) -> None:
        """Record an archive before it is sent: it may arrive although the answer is lost."""
        known = self.names(attempt)
        self._stamps.pop(attempt, None)
        if known is not None:
            self._write(attempt, known | names)

    def finish(self, attempt: int, stamps: Stamps) -> None:
        """Record that the archive arrived completely."""
        self._stamps[attempt] = stamps
        self._write(attempt, stamps.keys())

    def keep(self, attempts: AbstractSet[int]) -> None:
        """Forget all other attempts; their folders are removed elsewhere."""
        self._stamps = {attempt: stamps for attempt, stamps in self._stamps.items() if attempt in attempts}

    def _write(self, attempt: int, names: AbstractSet[str]) -> None:
        write_json(_names_in(AttemptFolder(self._attempts / str(attempt))), sorted(names))


def may_replace(known: AbstractSet[str] | None, *, settled: AbstractSet[str], changing: AbstractSet[str]) -> bool:
    """Whether an archive without the files that still change may take the place of one with the known names. Pure.

    A known file that is gone may have been replaced by one that still changes.
    """
    return not changing or (known is not None and known <= settled)


def _names_in(folder: AttemptFolder) -> Path:
    return folder.path / "sent.json"
