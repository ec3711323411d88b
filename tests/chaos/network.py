"""The network between the services and PostgreSQL: socat, whose connections hang while it stands still."""

import os
import signal
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

from tests.deployment import others, told, wait_for
from tests.private_servers import Server, accepts_connections, free_port
from tests.stack.composed import Member, Stack


class Network:
    """Connections to one port lead to another."""

    def __init__(self, to: int, log: Path) -> None:
        self.port = free_port()
        listen = f"TCP-LISTEN:{self.port},bind=127.0.0.1,reuseaddr,fork,backlog=100"
        self._server = Server(["socat", listen, f"TCP:127.0.0.1:{to}"], log)

    def start(self) -> None:
        self._server.start()

    def reset(self) -> None:
        """Cut all connections, and refuse new ones until it is started again; what stands still, too."""
        self._server.kill()

    def processes(self) -> list[int]:
        """That which listens, and one for each connection."""
        words = f"TCP-LISTEN:{self.port},".encode()
        return [pid for pid in others() if words in told(pid, "cmdline")]

    def hang(self) -> list[int]:
        """Carry nothing, and keep all connections; the processes that are to be continued."""
        pids = self.processes()
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        return pids


class NetworkedStack(Stack):
    """The full stack, whose services reach PostgreSQL through a network that can be cut."""

    @cached_property
    def network(self) -> Network:
        return Network(int(self.ports["5432"]), self.folder / "network.log")

    def up(self) -> None:
        self.network.start()
        super().up()

    def down(self) -> None:
        super().down()
        self.network.reset()

    def await_condition(self, name: str, condition: str) -> None:
        super().await_condition(name, condition)
        if name == "postgres":
            wait_for("the network carries", lambda: accepts_connections(self.network.port))

    def _member(self, name: str, spec: dict[str, Any], folder: Path) -> Member:
        member = super()._member(name, spec, folder)
        if "MOTLEY_DATABASE" in member.environment:
            address = member.environment["MOTLEY_DATABASE"]
            member.environment["MOTLEY_DATABASE"] = address.replace(self.ports["5432"], str(self.network.port))
        return member
