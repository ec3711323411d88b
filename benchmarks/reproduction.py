"""Make the tables of docs/reproduction.md anew, each by the command that it names: `python -m benchmarks.reproduction`.

Output goes to `.cache/reproduction`, a file for each command; `--only contention` runs those that contain these words,
`--list` runs none. All of them take hours; one that fails is named at the end, and the others run.
"""

import argparse
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
DOCUMENT, RESULTS = ROOT / "docs" / "reproduction.md", ROOT / ".cache" / "reproduction"
COMMAND = re.compile(r"`(python -m benchmarks\.[^`]+)`")


class Section(NamedTuple):
    """A section of the document: its heading and level, the commands that it names, and whether it has a table."""

    heading: str
    level: int
    commands: tuple[str, ...]
    has_table: bool


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="WORDS")
    parser.add_argument("--list", action="store_true")
    asked = parser.parse_args()
    wanted = [command for command in commands(DOCUMENT.read_text()) if asked.only in command]
    if asked.list:
        sys.stdout.writelines(f"{command}\n" for command in wanted)
    elif failed := [command for number, command in enumerate(wanted, 1) if not run(command, f"{number}/{len(wanted)}")]:
        raise SystemExit("these failed:\n" + "\n".join(failed))


def commands(text: str) -> list[str]:
    """All commands of the document, each once, in its order."""
    return list(dict.fromkeys(command for section in sections(text) for command in section.commands))


def sections(text: str) -> list[Section]:
    """The sections of the document."""
    parts = re.split(r"^(#+) (.*)$", text, flags=re.MULTILINE)[1:]
    return [
        Section(heading, len(marks), tuple(COMMAND.findall(body)), "\n| " in body)
        for marks, heading, body in zip(parts[::3], parts[1::3], parts[2::3], strict=True)
    ]


def without_command(found: Sequence[Section]) -> list[str]:
    """Headings of the sections with a table that no command makes, of their own or of a section above them."""
    above: list[Section] = []
    lacking = []
    for section in found:
        above = [one for one in above if one.level < section.level] + [section]
        if section.has_table and not any(one.commands for one in above):
            lacking.append(section.heading)
    return lacking


def run(command: str, place: str) -> bool:
    """Run the command and write its output to a file; returns whether it succeeded."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    file, began = RESULTS / file_name(command), time.monotonic()
    sys.stdout.write(f"{place}  {command}\n")
    sys.stdout.flush()
    words = [sys.executable, *shlex.split(command)[1:]]
    with file.open("w") as output:
        output.write(f"{command}\n\n")
        output.flush()
        done = subprocess.run(words, cwd=ROOT, env=dict(os.environ), stdout=output, check=False)
    sys.stdout.write(f"     {time.monotonic() - began:.0f} s, {file.relative_to(ROOT)}\n")
    return done.returncode == 0


def file_name(command: str) -> str:
    """Name of the file for a command's output."""
    return re.sub(r"[^a-z0-9]+", "-", command.removeprefix("python -m benchmarks.").lower()).strip("-")[:80] + ".md"


if __name__ == "__main__":
    main()
