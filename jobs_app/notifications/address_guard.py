"""Guard against server-side request forgery: connections go to public addresses, and to networks that the site allows.

A name is resolved once and the connection goes to the address that was checked, so that a second answer of the name
server changes nothing. All of an exchange has one deadline, however slowly the other side sends.
"""

import socket
from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from ssl import SSLContext
from time import monotonic
from typing import Any

import httpcore

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network
WITH_IPV4 = tuple(map(ip_network, ("64:ff9b::/96", "::/96", "::ffff:0:0:0/96")))
"""IPv6 addresses that end with one of IPv4: of NAT64, compatible (deprecated) and translated ones."""
ISATAP = (0x0000_5EFE, 0x0200_5EFE)
"""The word before the IPv4 address in those of this tunnel, in any network."""


class AddressRefused(Exception):
    """The host has an address that is not allowed."""


def addresses_of(host: str, port: int) -> list[Address]:
    """The addresses of a host, by the resolver of this machine; raises `OSError`."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(ip_address(str(place[0]).partition("%")[0]) for *_, place in found))


def refuse_private(host: str, addresses: Iterable[Address], allowed: Sequence[Network], *, encrypted: bool) -> None:
    """Raise `AddressRefused` unless each address is public, or in an allowed network; without TLS only the latter."""
    for address in addresses:
        if any(address in network for network in allowed):
            continue
        if not all(one.is_global and not one.is_multicast for one in (address, *_embedded(address))):
            raise AddressRefused(f"{host} has the address {address}, which is not public.")
        if not encrypted:
            raise AddressRefused(f"{host} is public: write https://.")


def literal_address(host: str) -> Address | None:
    """The address that the host of a URL is; None: it is a name."""
    try:
        return ip_address(host)
    except ValueError:
        return None


def _embedded(address: Address) -> Iterable[Address]:
    """IPv4 addresses embedded in this IPv6 address, to which a translator or tunnel would forward packets."""
    if isinstance(address, IPv6Address):
        teredo = address.teredo or ()
        ends_with_ipv4 = any(address in network for network in WITH_IPV4) or int(address) >> 32 & 0xFFFFFFFF in ISATAP
        last = [IPv4Address(int(address) & 0xFFFFFFFF)] if ends_with_ipv4 else []
        yield from (one for one in (address.ipv4_mapped, address.sixtofour, *teredo, *last) if one is not None)


class GuardedBackend(httpcore.NetworkBackend):
    """Network backend of one exchange: connects to checked addresses only, until a deadline."""

    def __init__(self, allowed: Sequence[Network], *, encrypted: bool, longest_s: float) -> None:
        self._allowed, self._encrypted = allowed, encrypted
        self._until = monotonic() + longest_s
        self._network = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        try:
            addresses = addresses_of(host, port)
        except OSError as error:
            raise httpcore.ConnectError(f"{host} is not known: {error}") from error
        refuse_private(host, addresses, self._allowed, encrypted=self._encrypted)
        for address in addresses[:-1]:
            try:
                return self._connected(address, port)
            except httpcore.ConnectError:
                continue  # IPv6, say, on a machine that has none
        return self._connected(addresses[-1], port)

    def _connected(self, address: Address, port: int) -> httpcore.NetworkStream:
        stream = self._network.connect_tcp(str(address), port, timeout=left_s(self._until))
        return DeadlineStream(stream, self._until)


class DeadlineStream(httpcore.NetworkStream):
    """Stream whose reads and writes end at a deadline."""

    def __init__(self, stream: httpcore.NetworkStream, until: float) -> None:
        self._stream, self._until = stream, until

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, timeout=left_s(self._until))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, timeout=left_s(self._until))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        encrypted = self._stream.start_tls(ssl_context, server_hostname, timeout=left_s(self._until))
        return DeadlineStream(encrypted, self._until)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


def left_s(until: float) -> float:
    """Seconds until the deadline; raises when it has passed."""
    left = until - monotonic()
    if left <= 0:
        raise httpcore.ReadTimeout("It took too long.")
    return left
