"""Network of servers on one machine: namespaces on a bridge where tests run as root, else addresses of the loopback.

Without namespaces each service has a network 127.x.y of its own, from its port, which no other service has meanwhile:
a gang's port is the same for each, and on shared addresses its ranks would meet those of another worker's service.

Each server reaches the service at an address of its own machine, from which a relay carries the bytes on: agents send
tokens to https alone, or to this machine.
"""

import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from tests.deployment import ROOT, wait_for
from tests.private_servers import free_port

MOST_SERVERS = 8
RELAY_PORT = 8000


def ip(*words: str, check: bool = True) -> None:
    subprocess.run(["ip", *words], check=check, capture_output=True, timeout=60)


@cache
def can_make_namespaces() -> bool:
    """Whether this machine lets us make network namespaces and a bridge."""
    if os.geteuid() != 0:
        return False
    name = f"mt{secrets.token_hex(3)}"
    try:
        ip("netns", "add", name)
        ip("link", "add", name, "type", "bridge")
    except (OSError, subprocess.CalledProcessError):
        return False
    finally:
        for words in (("link", "del", name), ("netns", "del", name)):
            subprocess.run(["ip", *words], check=False, capture_output=True)
    return True


class ServerNetwork:
    """Places of servers, by number from 1."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._relays: dict[int, subprocess.Popen[bytes]] = {}

    def add(self, number: int) -> None:
        """Make the place of this server."""
        self.mend(number)

    def address(self, number: int) -> str:
        return f"127.{self._port >> 8}.{self._port & 255}.{number}"

    def url(self, number: int) -> str:
        """The service, as this server reaches it."""
        return f"http://127.0.0.1:{self._relay_port(number)}"

    def prefix(self, number: int) -> tuple[str, ...]:
        """Command that enters the place of the server, before one of its own."""
        return ()

    def cut(self, number: int) -> None:
        """Cut the server off."""
        _end(self._relays.pop(number))

    def mend(self, number: int) -> None:
        self._carry(number)

    def reset(self, number: int) -> None:
        """Cut all connections of the server; new ones are taken at once."""
        _end(self._relays.pop(number))
        self._carry(number)

    def _carry(self, number: int) -> None:
        self._start_relay(number, ("127.0.0.1", self._relay_port(number)), ("127.0.0.1", self._port))

    def close(self) -> None:
        for relay in self._relays.values():
            _end(relay)

    def _relay_port(self, number: int) -> int:
        return _ports(self._port)[number]

    def _start_relay(self, number: int, at: tuple[str, int], to: tuple[str, int], *prefix: str) -> None:
        """A relay in the place of this server; 0: in that of the service."""
        places = [str(word) for word in (*at, *to)]
        command = [*prefix, sys.executable, "-S", str(ROOT / "tests" / "relay.py"), *places]
        relay = self._relays[number] = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert relay.stdout is not None
        wait_for("the relay listens", relay.stdout.readline)


def _end(relay: subprocess.Popen[bytes]) -> None:
    relay.kill()
    relay.communicate()


@cache
def _ports(port: int) -> list[int]:
    """Free ports, the same for one service."""
    return [free_port() for _ in range(MOST_SERVERS + 1)]


class Namespaces(ServerNetwork):
    """Each server has a network namespace, with a link to a bridge on which the service has an address, too."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self._name = f"mt{secrets.token_hex(3)}"
        self._net = f"10.{77 + secrets.randbelow(100)}.{secrets.randbelow(250)}"
        ip("link", "add", self._name, "type", "bridge")
        ip("addr", "add", f"{self._net}.254/24", "dev", self._name)
        ip("link", "set", self._name, "up")
        self._start_relay(0, (f"{self._net}.254", RELAY_PORT), ("127.0.0.1", port))

    def add(self, number: int) -> None:
        space, link = self._space(number), self._link(number)
        ip("netns", "add", space)
        ip("link", "add", link, "type", "veth", "peer", "name", "lab0", "netns", space)
        ip("link", "set", link, "master", self._name, "up")
        ip("-n", space, "addr", "add", f"{self.address(number)}/24", "dev", "lab0")
        for device in ("lab0", "lo"):
            ip("-n", space, "link", "set", device, "up")
        self._carry(number)

    def address(self, number: int) -> str:
        return f"{self._net}.{number}"

    def url(self, number: int) -> str:
        return f"http://127.0.0.1:{RELAY_PORT}"

    def prefix(self, number: int) -> tuple[str, ...]:
        return ("nsenter", f"--net=/run/netns/{self._space(number)}")

    def cut(self, number: int) -> None:
        """The link goes down: neither the service nor another server is reached."""
        ip("link", "set", self._link(number), "down")

    def mend(self, number: int) -> None:
        ip("link", "set", self._link(number), "up")

    def close(self) -> None:
        super().close()
        for number in self._relays:
            if number:
                ip("netns", "del", self._space(number), check=False)
                ip("link", "del", self._link(number), check=False)
        ip("link", "del", self._name, check=False)

    def _carry(self, number: int) -> None:
        service = f"{self._net}.254", RELAY_PORT
        self._start_relay(number, ("127.0.0.1", RELAY_PORT), service, *self.prefix(number))

    def _space(self, number: int) -> str:
        return f"{self._name}s{number}"

    def _link(self, number: int) -> str:
        return f"{self._name}l{number}"


@contextmanager
def a_network(port: int) -> Iterator[ServerNetwork]:
    """A network for servers of the service at this port."""
    network = Namespaces(port) if can_make_namespaces() else ServerNetwork(port)
    try:
        yield network
    finally:
        network.close()
