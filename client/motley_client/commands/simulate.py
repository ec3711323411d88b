"""The commands `motley simulate` and `shadow`: this process becomes the simulator, where that is installed."""

import os
import sys
from pathlib import Path
from typing import NoReturn

import typer

from motley_client.configuration import ConfigurationError

AS_IT_IS = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
"""All arguments are passed to the simulator, --help included."""


def simulate(context: typer.Context) -> None:
    """Simulate job traces: run, compare, generate. Uses the scheduler's own code, without a running service."""
    _become_the_simulator("motley simulate", context.args)


def shadow(context: typer.Context) -> None:
    """Replay the accounting of a Slurm cluster under Motley's policies, on one page: shadow import sacct.txt."""
    _become_the_simulator("motley", ["shadow", *context.args])


def _become_the_simulator(program: str, words: list[str]) -> NoReturn:
    root = simulator_root()
    environment = {"PYTHONPATH": os.pathsep.join([str(root), *_python_path()]), "MOTLEY_PROGRAM": program}
    # exec, so that signals and the exit code are the simulator's own; -P: never import from the current folder.
    command = [sys.executable, "-P", "-m", "simulation", *words]
    os.execve(sys.executable, command, {**os.environ, **environment})  # noqa: S606  # no shell is wanted


def simulator_root() -> Path:
    """Root of the service's checkout: the folder that contains the virtual environment of this command."""
    root = Path(sys.prefix).parent
    if not (root / "simulation" / "__main__.py").is_file():
        raise ConfigurationError(
            "The simulator is not installed here: it is part of the service, and this is the client alone. "
            "In a checkout of Motley, ./bootstrap.sh run installs both; then use .venv/bin/motley simulate."
        )
    return root


def _python_path() -> list[str]:
    return [path for path in [os.environ.get("PYTHONPATH")] if path]
