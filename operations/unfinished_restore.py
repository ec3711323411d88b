"""State of an unfinished restore: what it knew of the machines that had joined, for the restore that follows it.

The database of before is gone then: that of the backup says when machines were heard before the backup.
"""

import json
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from django.conf import settings

from connections_app.agents.silence import LEASE_MARGIN
from engines.attempt_files import sync_folder, write_json


class MachinesBefore(NamedTuple):
    """Machines of the database that a restore replaces."""

    lease_s: float
    """Seconds for which jobs may run on at one of them."""
    had_joined: bool


def unfinished_restore() -> MachinesBefore | None:
    """What a restore that was begun and has not ended had noted; None if there is none."""
    try:
        return MachinesBefore(**json.loads(_file().read_text()))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError):  # of another version: as if one had been heard until then
        return MachinesBefore(LEASE_MARGIN * settings.MOTLEY_AGENT_LEASE_S, had_joined=True)


def note_unfinished_restore(before: MachinesBefore) -> None:
    """Call it before anything is replaced; it survives a power loss."""
    write_json(_file(), before._asdict())
    sync_folder(settings.VAR_DIR)


def forget_unfinished_restore() -> None:
    """Call it when no job is left at a machine."""
    with suppress(FileNotFoundError):
        _file().unlink()


def _file() -> Path:
    var: Path = settings.VAR_DIR
    return var / "unfinished_restore.json"
