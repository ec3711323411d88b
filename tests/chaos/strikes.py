"""Faults between two statements, as the campaign arms them and learns where they struck."""

import json
import random
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from tests.chaos.between_statements.sitecustomize import FAILING, MODULES

FOLDER = Path(__file__).parent / "between_statements"
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
    """One fault at a time is armed, by a file beside the service."""

    def __init__(self, place: Path) -> None:
        self._armed, self._taken, self._struck = (
            place.with_name(place.name + end) for end in ("", ".taken", ".struck")
        )

    @staticmethod
    def environment(place: Path) -> dict[str, str]:
        """For the processes that may be struck."""
        return {"PYTHONPATH": str(FOLDER), "MOTLEY_TEST_STRIKES": str(place)}

    def arm(self, kind: str, rng: random.Random) -> None:
        module = FAILING if kind == "fails" else rng.choice(sorted(MODULES))
        fault = {
            "kind": kind,
            "module": module,
            "statements": rng.randrange(MOST_STATEMENTS),
            "seconds": rng.uniform(*SLOW_S),
        }
        draft = self._armed.with_suffix(".draft")
        draft.write_text(json.dumps(fault))
        draft.replace(self._armed)

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
