"""Plain files in the place of a cgroup, for machines on which none can be made; the kernel's own are in own_kernel."""

import json
from pathlib import Path
from typing import Self

from engines.attempt_files import AttemptFolder


class StandInCgroup:
    """The files of a cgroup of rank 0 of an attempt that runs on a local engine."""

    def __init__(self, folder: Path, limits: dict[str, str]) -> None:
        self._folder = folder
        for name, text in limits.items():
            (folder / name).write_text(text)

    @classmethod
    def of(cls, root: Path, attempt: int, folder: Path, **limits: str) -> Self:
        """Of the engine below this folder; `cpu_weight="100"` is the file cpu.weight."""
        named = {name.replace("_", "."): text for name, text in limits.items()}
        launch = AttemptFolder(root / "attempts" / str(attempt)).launch
        written = json.loads(launch.read_text())
        written["ranks"][0]["limits"]["cgroup"] = {"path": str(folder), "limits": named}
        launch.write_text(json.dumps(written))
        return cls(folder, named)

    def holds(self, name: str, text: str) -> bool:
        """Whether the file begins with what was written last: a plain file keeps the end of a longer text."""
        return (self._folder / name).read_text()[: len(text)] == text
