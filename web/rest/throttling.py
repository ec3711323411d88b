"""Rate limits with fixed windows, counted in the cache; without the cache requests are not limited."""

import logging
from ipaddress import IPv4Address, IPv6Address, ip_address
from time import monotonic
from typing import TYPE_CHECKING, TypedDict

from django.conf import settings
from django.http import HttpRequest
from django_ratelimit.core import get_usage
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle

if TYPE_CHECKING:  # REST framework imports the default throttles while its views are being imported
    from rest_framework.views import APIView

log = logging.getLogger(__name__)

PEER = "HTTP_MOTLEY_PEER"
"""Header field of the front (`front.exchange.PEER`), in which no client can write."""
OVER_A_FILE = "unix"
NO_HEADER = "-"

PAUSE_S = 5.0
"""After a failure the cache is not asked again for this time, since each try would delay a request."""


class Usage(TypedDict):
    count: int
    limit: int
    should_limit: bool
    time_left: int


class Counter:
    """Counts requests in the cache; while the cache fails, nothing is counted."""

    def __init__(self) -> None:
        self._away_until = 0.0

    def count(self, request: HttpRequest, group: str, caller: str, rate: str) -> int | None:
        """Count one request of this caller; return the seconds to wait if the limit is exceeded, else None."""
        if monotonic() < self._away_until:
            return None
        try:
            usage: Usage | None = get_usage(request, group, key=lambda *_: caller, rate=rate, increment=True)
        except _no_answers() as error:
            self._note_away(error)
            return None
        self._away_until = 0.0
        return max(1, usage["time_left"]) if usage and usage["should_limit"] else None

    def _note_away(self, error: Exception) -> None:
        if not self._away_until:
            log.warning("the cache does not answer; requests are not limited until it does: %s", error)
        self._away_until = monotonic() + PAUSE_S


def _no_answers() -> tuple[type[Exception], ...]:
    """Errors that say that the cache does not answer."""
    from redis.exceptions import RedisError  # loads redis, which only a cache in Redis needs

    return RedisError, OSError


counter = Counter()


class ByUser(BaseThrottle):
    """Limit per user over REST, whichever token is used."""

    def allow_request(self, request: Request, view: "APIView") -> bool:
        self._wait_s = counter.count(request._request, "rest", f"user {request.user.pk}", settings.MOTLEY_REST_RATE)
        return self._wait_s is None

    def wait(self) -> float | None:
        return self._wait_s


def address_of(request: HttpRequest) -> str:
    """Address of the caller: from the header of a proxy that is trusted (first entry), else of the connection."""
    peer = _peer_of(request)
    given = request.headers.get(settings.MOTLEY_ADDRESS_HEADER or NO_HEADER, "").split(",")[0].strip()
    address = _parsed(given) if _is_proxy(peer) else None
    return str(address or _parsed(peer) or "127.0.0.1")


def _peer_of(request: HttpRequest) -> str:
    """Who made the connection: an address, or `OVER_A_FILE`. Without an address the server's client is the front."""
    return str(request.META.get("REMOTE_ADDR") or request.META.get(PEER, ""))


def _is_proxy(peer: str) -> bool:
    """Whether what the peer says of its callers counts: only a proxy may open the socket in the file system."""
    address = _parsed(peer)
    return peer == OVER_A_FILE or (address is not None and any(address in one for one in settings.MOTLEY_PROXIES))


def _parsed(text: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(text)
    except ValueError:
        return None
