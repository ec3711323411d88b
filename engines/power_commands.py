"""Commands that put nodes to sleep and wake them, run in the background, each within a time limit."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from engines.protocol import EngineError, PowerCommand
from engines.site_command import NOT_FOUND, SiteCommand, fault_of, split_command

PASSED_ON = ("PATH", "HOME", "LANG")
"""Of the service's environment, which has its keys."""


class PowerTask(NamedTuple):
    """Task of a command, which distinguishes its end from that of another command for the same node."""

    node: str
    since: datetime
    """When the node was put to sleep, or began to be woken."""
    sent_at: datetime


def command_of_site(template: str, node: str) -> PowerCommand:
    """The command that the site gave for all nodes, for this one; raises `ValueError` for quotes that do not end."""
    env = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    return PowerCommand(split_command(template, node=node), None, env)


@dataclass(frozen=True)
class PowerCommandEnd:
    """How a command ended. `exit_code` is None where its time was up."""

    task: PowerTask
    exit_code: int | None
    output: str

    @property
    def fault(self) -> str:
        """Fault of the command; empty if it succeeded."""
        return fault_of(self.exit_code, self.output)


class PowerCommands:
    """Running commands by node, one per node at a time."""

    def __init__(self) -> None:
        self._running: dict[str, tuple[PowerTask, SiteCommand]] = {}
        self._unstarted: list[PowerCommandEnd] = []

    @property
    def nodes(self) -> set[str]:
        """Nodes with a command under way."""
        return {*self._running}

    def start(self, task: PowerTask, make: Callable[[], PowerCommand], *, timeout_s: float) -> None:
        """Start the command for a node without a shell; one that cannot be started is among the next ends."""
        try:
            made = make()
            command = SiteCommand.start(made.argv, timeout_s=timeout_s, env=made.env, folder=made.folder)
        except (OSError, ValueError, EngineError) as error:  # no such program; quotes that do not end; no such node
            self._unstarted.append(PowerCommandEnd(task, NOT_FOUND, str(error)))
        else:
            self._running[task.node] = task, command

    def ended(self) -> Iterator[PowerCommandEnd]:
        """Commands that have ended since the last call; those whose time is up are killed with what they started."""
        unstarted, self._unstarted = self._unstarted, []
        yield from unstarted
        for node, (task, command) in list(self._running.items()):
            if command.is_over:
                del self._running[node]
                yield PowerCommandEnd(task, *command.end())
