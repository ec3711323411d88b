"""Faults inside the service's processes: between two statements, and steps of the clock."""

import json
import random
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from tests.chaos.in_processes.chaos_statements import FAILING, MODULES

FOLDER = Path(__file__).parent / "in_processes"
MOST_STATEMENTS = 120
"""From the first statement of the module to the one at which the fault strikes."""
SLOW_S = (2.0, 8.0)


class Struck(NamedTuple):
    kind: str
    pid: int
    where: str
    """As module:line."""
    seconds: float


class Strikes:
    """Files in a folder beside the service, by which its processes are told. One fault at a time is armed."""

    def __init__(self, folder: Path, modules: Collection[str] = MODULES) -> None:
        self._modules = sorted(modules)
        self._armed, self._struck, self._clock = folder / "strike", folder / "strike.struck", folder / "clock"
        self.environment = {
            "PYTHONPATH": str(FOLDER),
            "CHAOS_STRIKES": str(self._armed),
            "CHAOS_CLOCK": str(self._clock),
        }
        """Of the processes that may be struck."""
        self.ahead_s = 0.0
        """How far the service's clock is set."""

    def set_clock(self, ahead_s: float) -> None:
        _write(self._clock, str(ahead_s))
        self.ahead_s = ahead_s

    def arm(self, kind: str, rng: random.Random) -> None:
        module = FAILING if kind == "fails" else rng.choice(self._modules)
        fault = {
            "kind": kind,
            "module": module,
            "statements": rng.randrange(MOST_STATEMENTS),
            "seconds": rng.uniform(*SLOW_S),
        }
        _write(self._armed, json.dumps(fault))

    def disarm(self) -> None:
        """What was taken may strike still."""
        self._armed.unlink(missing_ok=True)

    def look(self) -> Struck | None:
        """The fault that has struck since the last look."""
        with suppress(FileNotFoundError):
            told: dict[str, Any] = json.loads(self._struck.read_text())
            self._struck.unlink()
            return Struck(told["kind"], told["pid"], told["where"], told["seconds"])
        return None


def _write(path: Path, text: str) -> None:
    """At once: a reader sees all of it or nothing."""
    draft = path.with_suffix(".draft")
    draft.write_text(text)
    draft.replace(path)
