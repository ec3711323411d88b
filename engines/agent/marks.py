"""Marks of the service's answers, by which copies of a machine are told apart: each is stored before it is shown."""

import logging
from pathlib import Path

from engines.attempt_files import read_json, sync_folder, write_json
from engines.linux import seconds_since_boot

log = logging.getLogger(__name__)

IDLE_EVERY_S = 5.0
"""Without work a mark is stored so often: two writes to the disk in each second were most of an idle agent's work."""


class Marks:
    """The mark that the next message shows. It may be an older one: the service knows those of its last answers."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._shown: str | None = None
        self._stored_at_s = 0.0

    def to_show(self) -> str:
        """The last mark that is on the disk for certain: with an older one we would pass for a copy of us."""
        if self._shown is None:
            self._shown = read_json(self._path) or ""
        return self._shown

    def keep(self, mark: str, *, has_work: bool) -> bool:
        """Store the mark of an answer if it is time to; returns False where that failed.

        On a full disk it fails: the mark of before is shown again, which the service takes, and stops and removals are
        obeyed, which make room. A copy of this machine would show that mark, too, so that nothing is started then.
        `has_work`: jobs are here, or begin with this answer, so that the mark is stored in any case.
        """
        now_s = seconds_since_boot()
        if not has_work and self._stored_at_s and now_s - self._stored_at_s < IDLE_EVERY_S:
            return True
        try:
            write_json(self._path, mark)
            sync_folder(self._path.parent)
        except OSError as error:
            log.warning("the mark of the answer could not be stored, and no job is started here: %s", error)
            return False
        self._shown, self._stored_at_s = mark, now_s
        return True
