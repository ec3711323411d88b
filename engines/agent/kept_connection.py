"""Connections to the service: one that is kept between messages, and the terms of TLS that all of them share.

An agent sends a message every second. To make a connection for each took longer than all else that an idle agent does:
the default terms of TLS read every certificate authority of the machine, and a handshake follows.
"""

import ssl
from collections.abc import Mapping
from functools import lru_cache
from http.client import HTTPConnection, HTTPSConnection
from io import BytesIO
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from engines.linux import seconds_since_boot

TERMS_LAST_S = 3600.0
"""After an hour the certificate authorities are read again, and connections are made anew: an administrator may have
changed them."""


def tls_terms() -> ssl.SSLContext:
    """The default terms, by which certificates are checked."""
    return _terms_of(int(seconds_since_boot() // TERMS_LAST_S))


@lru_cache(maxsize=1)
def _terms_of(_: int) -> ssl.SSLContext:
    terms = ssl.create_default_context()
    terms.set_alpn_protocols(["http/1.1"])
    return terms


def forget_terms() -> None:
    """Have the certificate authorities read again: those in memory did not verify a certificate."""
    _terms_of.cache_clear()


def direct_connection(url: str, timeout_s: float) -> HTTPConnection:
    """A connection to the server of this address, which is opened by the first request."""
    parts = urlsplit(url)
    if parts.scheme == "https":
        return HTTPSConnection(parts.netloc, timeout=timeout_s, context=tls_terms())
    return HTTPConnection(parts.netloc, timeout=timeout_s)


def needs_a_proxy(url: str) -> bool:
    """Whether the environment names a proxy for this address, as for all that urllib opens."""
    parts = urlsplit(url)
    return parts.scheme in getproxies() and not proxy_bypass(parts.netloc)


class KeptConnection:
    """One connection, for one thread: requests follow each other on it while neither side has closed it."""

    def __init__(self, url: str, timeout_s: float) -> None:
        self._url, self._timeout_s = url, timeout_s
        self._is_secure = urlsplit(url).scheme == "https"
        self._http: HTTPConnection | None = None
        self._terms: ssl.SSLContext | None = None

    def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> bytes:
        """The answer to this message; raises `HTTPError`, `OSError` and `HTTPException`.

        The other side closes a connection between two messages, as after a minute without one, or when it is restarted:
        then the message is sent once more, on a new one. It may have been taken the first time, as before each answer
        that is lost.
        """
        was_open = self._drop_if_old()
        try:
            return self._exchange(url, body, headers)
        except ConnectionError:
            if not was_open:
                raise
        return self._exchange(url, body, headers)

    def _drop_if_old(self) -> bool:
        """Close a connection that the other side has ended, or of former terms; returns whether one is open."""
        terms = tls_terms() if self._is_secure else None
        if self._http is not None and (self._http.sock is None or terms is not self._terms):
            self.close()
        self._terms = terms
        return self._http is not None

    def _exchange(self, url: str, body: bytes, headers: Mapping[str, str]) -> bytes:
        if self._http is None:
            self._http = direct_connection(self._url, self._timeout_s)
        try:
            self._http.request("POST", urlsplit(url).path, body, dict(headers))
            answer = self._http.getresponse()
            content = answer.read()
        except BaseException:  # what is still to come on it would pass for the next answer
            self.close()
            raise
        if not 200 <= answer.status < 300:
            raise HTTPError(url, answer.status, answer.reason, answer.headers, BytesIO(content))
        return content

    def close(self) -> None:
        """Close it; the next message opens another."""
        if self._http is not None:
            self._http.close()
            self._http = None
