"""Network of a server: the address at which its peers reach it, and the interface that has this address."""

import fcntl
import socket
import struct
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple, Self
from urllib.parse import urlsplit

from engines.protocol import Launch

SIOCGIFADDR = 0x8915
"""linux/sockios.h: the IPv4 address of an interface."""
INTERFACE_VARIABLES = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")
"""Without them both take the first interface that is up, which may be one that the other servers do not reach."""


class Network(NamedTuple):
    """The network that trainings use."""

    address: str
    """IPv4 address of this server."""
    interface: str
    """Empty: no interface has this address by itself, as that of 127.0.1.2."""

    @classmethod
    def of(cls, address: str, url: str) -> Self:
        """With the address that the administrator gave, else that from which the service is reached."""
        address = address or source_address(url)
        return cls(address, interfaces().get(address, ""))

    def with_interface(self, launch: Launch) -> Launch:
        """The launch of a gang, whose libraries use this interface unless the job names one."""
        if not self.interface or not launch.master_address:
            return launch
        added = {name: self.interface for name in INTERFACE_VARIABLES if name not in launch.env}
        return replace(launch, tasks=[replace(task, env={**task.env, **added}) for task in launch.tasks])


class OwnNetwork:
    """The network of this server, looked for until it is found: at boot an agent may start before the network does."""

    def __init__(self, address: str, url: str) -> None:
        self._url = url
        self._found = Network.of(address, url)

    def __call__(self) -> Network:
        if not self._found.interface and not is_loopback(self._found.address):
            self._found = Network.of(self._found.address, self._url)
        return self._found


def source_address(url: str) -> str:
    """Own address on the route to the service; empty where there is none. Nothing is sent."""
    parts = urlsplit(url)
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((parts.hostname or "", parts.port or 443))
            return str(probe.getsockname()[0])
    except OSError:
        return ""


def is_loopback(address: str) -> bool:
    """Whether only this machine reaches itself at the IPv4 address."""
    return address.startswith("127.")


def interfaces() -> Mapping[str, str]:
    """IPv4 address -> the interface that has it, by `SIOCGIFADDR`."""
    found: dict[str, str] = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        for _, name in socket.if_nameindex():
            try:
                answer = fcntl.ioctl(asking, SIOCGIFADDR, struct.pack("256s", name.encode()))
            except OSError:  # it has no address
                continue
            found[socket.inet_ntoa(answer[20:24])] = name
    return found
