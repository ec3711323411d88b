"""Simulations: they run the service's own code, to which this command hands over where it is installed."""

import os
import sys
from pathlib import Path

import typer

from motley_client.configuration import ConfigurationError

AS_IT_IS = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
"""What follows is the simulator's, --help included."""


def simulate(context: typer.Context) -> None:
    """Run traces of jobs through the service's own decisions: run, compare, generate. It needs no service."""
    root = simulator_root()
    environment = {"PYTHONPATH": os.pathsep.join([str(root), *_python_path()]), "MOTLEY_PROGRAM": "motley simulate"}
    # In its place, so that signals and the exit code are its own; -P: nothing of the folder it is called in is run.
    command = [sys.executable, "-P", "-m", "simulation", *context.args]
    os.execve(sys.executable, command, {**os.environ, **environment})  # noqa: S606  # no shell is wanted


def simulator_root() -> Path:
    """The folder of the service's packages, which lie beside the environment that is made for them."""
    root = Path(sys.prefix).parent
    if not (root / "simulation" / "__main__.py").is_file():
        raise ConfigurationError(
            "The simulator is not installed here: it is a part of the service, and this is the client alone. "
            "In a checkout of Motley ./bootstrap.sh run installs both; .venv/bin/motley simulate is then this command."
        )
    return root


def _python_path() -> list[str]:
    return [path for path in [os.environ.get("PYTHONPATH")] if path]
