"""The commands `motley simulate` and `shadow`: this process becomes the simulator."""

import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

import typer

from motley_command.configuration import ConfigurationError

WITH_LIBRARIES = "motley-client[simulator]"
LIBRARIES = ("hostlist", "numpy", "plotly", "rapidfuzz", "scipy")
"""Of the extra `simulator`: the wheel carries the simulator itself."""

AS_IT_IS = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
"""All arguments are passed to the simulator, --help included."""


def simulate(context: typer.Context) -> None:
    """Simulate job traces: run, compare, bound, generate, shadow. Uses the scheduler's code, without a service."""
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
    """Folder that has the simulator's packages: the checkout around this environment, else that of the wheel."""
    checkout = Path(sys.prefix).parent
    if (checkout / "simulation" / "__main__.py").is_file():
        return checkout
    if any(find_spec(name) is None for name in LIBRARIES):
        raise ConfigurationError(
            f"The simulator needs libraries that are not installed here: pip install '{WITH_LIBRARIES}'. "
            "To have the address of the wheel in place of an index: "
            f"pip install '{WITH_LIBRARIES} @ https://…/client/motley_client-….whl', as the page Client shows it."
        )
    return Path(__file__).parents[2] / "motley_simulator"


def _python_path() -> list[str]:
    return [path for path in [os.environ.get("PYTHONPATH")] if path]
