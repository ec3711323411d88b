"""The `motley` command as tests run it."""

import os
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

from typer.main import get_command
from typer.testing import CliRunner, Result

from motley_command.cli import app

MADE_ONCE = cache(get_command)
"""The tree of all commands: a tenth of what a test of one takes."""


@dataclass
class Motley:
    """The `motley` command: within this process for most tests, as one of its own where signals or pipes matter."""

    env: dict[str, str]

    def __call__(self, *arguments: str, typed: str | None = None, **env: str) -> Result:
        with patch("typer.testing._get_command", MADE_ONCE):
            return CliRunner().invoke(app, arguments, env={**self.env, **env}, input=typed)

    def start(self, *arguments: str, **streams: Any) -> subprocess.Popen[bytes]:
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams}
        command = [str(Path(sys.executable).parent / "motley"), *arguments]
        return subprocess.Popen(command, env={"PATH": os.environ["PATH"], **self.env}, **pipes)
