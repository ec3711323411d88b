"""Upgrades of a service beside a campaign: a copy of its sources, of which the part that agents run is changed.

The service itself never imports what is broken here: the agent's command line and its loop.
"""

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.deployment import ROOT

NOT_COPIED = shutil.ignore_patterns(".*", "var", "__pycache__", "node_modules")
NUMBER = Path("engines/agent/upgrade.py")
"""A module that nobody imports: with another number the program has another digest."""
COMMAND_LINE, LOOP = Path("engines/agent/__main__.py"), Path("engines/agent/agent.py")
CANNOT_START = "import a_module_that_is_nowhere\n"
ENDS = "\n\ndef _ends(_: Agent) -> int:\n    raise SystemExit(9)\n\n\nAgent.run = _ends\n"
"""It passes the trial, and ends before it has said a word to the service."""


def _runs(sources: Path) -> None:
    """As it is."""


def _cannot_start(sources: Path) -> None:
    path = sources / COMMAND_LINE
    path.write_text(path.read_text() + CANNOT_START)


def _ends(sources: Path) -> None:
    path = sources / LOOP
    path.write_text(path.read_text() + ENDS)


KINDS: Mapping[str, Callable[[Path], None]] = {
    "upgrade": _runs,
    "upgrade to a program that cannot start": _cannot_start,
    "upgrade to a program that ends": _ends,
}


class Upgrades:
    """The sources of a service, which are replaced between its end and its next start."""

    def __init__(self, folder: Path) -> None:
        self.sources = folder / "sources"
        shutil.copytree(ROOT, self.sources, ignore=NOT_COPIED)
        self.count = 0

    def install(self, kind: str) -> None:
        """Sources of which the agents' program is of this kind, and another than any before."""
        self.count += 1
        for path in (COMMAND_LINE, LOOP):
            shutil.copyfile(ROOT / path, self.sources / path)
        (self.sources / NUMBER).write_text(f"NUMBER = {self.count}\n")
        KINDS[kind](self.sources)
