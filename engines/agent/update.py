"""Change of a server's agent to another program of the service, while its jobs run on under their supervisors.

The program is fetched and tried by a thread, because the loop renews the lease of jobs meanwhile. The new program takes
the place of the process. If the service does not hear it within a minute, it goes back to the one before, and says why.
"""

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, NotRequired, TypedDict
from zipfile import BadZipFile

from engines.agent.connection import Connection, Refused, Unheard
from engines.agent.program import Program, digest_of, unpack, use
from engines.attempt_files import read_json, write_json
from engines.lease_file import boot_id
from engines.linux import seconds_since_boot

log = logging.getLogger(__name__)

HEARD_WITHIN_S = 60.0
RETRY_S = 600.0
"""Before a program that was taken back is tried again, where no order names it."""
PASSING_S = 60.0
"""Before a program is fetched and tried again after a fault that may pass: the other servers wait for this one."""
TRIAL_S = 60


class Change(TypedDict):
    """The last change of the program, for the one that takes over."""

    before: str
    """Digests of both programs."""
    after: str
    until_s: float
    """By our clock since boot: when it goes back unless it has been heard."""
    boot: str
    fault: NotRequired[str]
    """Why it was taken back, or was never made."""
    tries: NotRequired[int]
    """How often an administrator had asked for another try."""


class Failure(NamedTuple):
    """Why the last change failed, and with how many requests of an administrator to try again."""

    said: str = ""
    """Empty: it did not fail."""
    tries: int = 0


class BadProgram(Exception):
    """The program that was fetched does not run here."""


class NotNow(Exception):
    """The program cannot be used for a reason that may pass."""


class Updates:
    """Changes of the program of this server."""

    def __init__(
        self,
        state: Path,
        program: Program,
        become: Callable[[Path], None] | None = None,
        clock: Callable[[], float] = seconds_since_boot,
    ) -> None:
        self._path, self._program = state / "update.json", program
        self._become = become or _become
        self._clock = clock
        self._tried_at_s: dict[tuple[str, int], float] = {}
        self._ready: tuple[str, Path] | None = None
        """The digest that was asked for, and the folder of the program, which has been tried."""
        self._preparation: threading.Thread | None = None

    def failure(self) -> Failure:
        change = self._read()
        return Failure(change.get("fault", ""), change.get("tries", 0)) if change is not None else Failure()

    def change(self, connection: Connection, digest: str = "", tries: int = 0) -> None:
        """Change to the program that the service serves, which this digest names; returns while that is prepared.

        To be repeated: then the program is used when it is ready, or tried again after a fault that may pass. One that
        failed is tried again when an administrator has asked for that more often than before. Without a digest to any:
        of a service that speaks another version of the messages no more is heard.
        """
        own = self._program.digest
        if not own or digest == own or not self._may_try(digest, tries):
            return
        if self._ready is None or self._ready[0] != digest:
            self._begin(connection, digest, tries)
            return
        (_, folder), self._ready = self._ready, None
        if folder.name != own:
            self._change_to(folder, tries)

    def is_preparing(self) -> bool:
        """Whether a program is being fetched, or tried."""
        return self._preparation is not None and self._preparation.is_alive()

    def heard(self) -> None:
        """Note that the service has answered this program: the change is done."""
        change = self._read()
        if change is not None and change["after"] == self._program.digest:
            self._path.unlink(missing_ok=True)

    def watch(self) -> None:
        """Go back if this program was to be heard by now; where the machine has started anew, its minute does, too."""
        change = self._read()
        if change is None or change["after"] != self._program.digest or change.get("fault"):
            return
        if change["boot"] != boot_id():
            with suppress(OSError):
                self._note(change["after"], before=change["before"], tries=change.get("tries", 0))
                return
        elif self._clock() < change["until_s"]:
            return
        said = f"The program {change['after']} was not heard within {HEARD_WITHIN_S:.0f} s, and was taken back."
        log.error("%s", said)
        with suppress(OSError):  # of a full disk: to go back comes first
            write_json(self._path, {**change, "fault": said})
        self._become(self._program.prefix / change["before"])

    def _may_try(self, digest: str, tries: int) -> bool:
        """Whether no such program has failed here: one that is ordered fails once, any other again after a while."""
        failed = self._read()
        if failed is None or not failed.get("fault"):
            return True
        if digest:
            return failed["after"] != digest or failed.get("tries", 0) < tries
        return failed["boot"] != boot_id() or self._clock() >= failed["until_s"] + RETRY_S

    def _begin(self, connection: Connection, digest: str, tries: int) -> None:
        """Have the program prepared, unless that was begun lately, or another is."""
        now_s = self._clock()
        if self.is_preparing() or now_s < self._tried_at_s.get((digest, tries), -PASSING_S) + PASSING_S:
            return
        self._tried_at_s[digest, tries] = now_s
        self._preparation = threading.Thread(target=self._prepare, args=(connection, digest, tries), daemon=True)
        self._preparation.start()

    def _prepare(self, connection: Connection, digest: str, tries: int) -> None:
        """Fetch the program and try it; one that does not run is noted, which ends the update of all servers."""
        said = f"The program {digest or 'of the service'} could not be used"
        try:
            self._ready = digest, self._fetched(connection, digest)
        except (BadProgram, BadZipFile) as error:
            log.error("%s: %s", said, error)
            self._note(digest, fault=f"{said}: {error}"[:500], tries=tries)
        except (NotNow, Unheard, Refused, OSError) as error:
            log.warning("%s for now: %s", said, error)

    def _fetched(self, connection: Connection, digest: str) -> Path:
        """Folder of the program, which has been tried."""
        archive = self._program.prefix / ".fetched"
        connection.fetch_program(archive)
        try:
            if digest and digest_of(archive) != digest:
                raise NotNow(f"the service serves {digest_of(archive)}")
            folder = unpack(archive, self._program.prefix)
        finally:
            archive.unlink(missing_ok=True)
        _try(folder)
        return folder

    def _change_to(self, folder: Path, tries: int) -> None:
        log.info("the program changes from %s to %s", self._program.digest, folder.name)
        self._note(folder.name, tries=tries)
        self._become(folder)

    def _note(self, after: str, **more: Any) -> None:
        until_s = self._clock() + HEARD_WITHIN_S
        change = {"before": self._program.digest, "after": after, "until_s": until_s, "boot": boot_id()} | more
        write_json(self._path, change)

    def _read(self) -> Change | None:
        change: Change | None = read_json(self._path)
        return change


def _try(folder: Path) -> None:
    """Start the program once, to say what it can do; raises `BadProgram` and `NotNow`."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", "engines.agent", "run", "--help"],
            cwd=folder,
            check=False,
            capture_output=True,
            text=True,
            timeout=TRIAL_S,
        )
    except subprocess.TimeoutExpired:
        raise NotNow(f"it did not start within {TRIAL_S} s") from None
    if done.returncode != 0:
        raise BadProgram((done.stderr.strip().splitlines() or ["it said nothing"])[-1])


def _become(folder: Path) -> None:
    """Put the program of this folder in our place: the process goes on as it, with the same words."""
    os.chdir(use(folder))
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - our own words
