"""Clocks of servers that step by themselves: a library that is preloaded into the processes of one server.

`CLOCK_REALTIME` is the machine's, and no namespace has its own. The library is compiled for the campaign.
"""

import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("clock_of_a_server.c")


class ServerClocks:
    """Of servers, by number from 1; the clocks since the boot go on."""

    def __init__(self, folder: Path, library: Path) -> None:
        self._folder, self._library = folder, library

    def add(self, number: int) -> dict[str, str]:
        """Variables of the processes of this server."""
        self.set(number, 0)
        return {"LD_PRELOAD": str(self._library), "SERVER_CLOCK": str(self._file(number))}

    def set(self, number: int, ahead_s: int) -> None:
        """At once: a reader sees all of it or nothing."""
        draft = self._file(number).with_suffix(".draft")
        draft.write_text(str(ahead_s))
        draft.replace(self._file(number))

    def _file(self, number: int) -> Path:
        return self._folder / f"clock-of-gpu{number}"


def server_clocks(folder: Path) -> ServerClocks | None:
    """None where there is no compiler."""
    library = folder / "clock_of_a_server.so"
    command = ["cc", "-O2", "-shared", "-fPIC", "-o", str(library), str(SOURCE), "-ldl"]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    folder.chmod(0o711)  # jobs of another user pass through
    library.chmod(0o755)
    return ServerClocks(folder, library)
