"""Webhooks: JSON by POST, signed as the Standard Webhooks specification says; redirects are not followed."""

import base64
import hashlib
import hmac
import json
import secrets
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

import httpcore

from jobs_app.notifications.address_guard import AddressRefused, GuardedBackend, Network
from jobs_app.notifications.outbox import Outcome

KEY_PREFIX = "whsec_"
LONGEST_S = 10.0
"""For one message, from resolving the name to the status line."""
Headers = list[tuple[bytes | str, bytes | str]]
TOO_MANY, REQUEST_TIMEOUT = 429, 408


def new_key() -> str:
    """A key for signatures: 32 random bytes in Base64 behind a prefix."""
    return KEY_PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()


def signature(key: str, identifier: str, timestamp: int, body: bytes) -> str:
    """HMAC-SHA256 over id, timestamp and body, joined by dots."""
    secret = base64.b64decode(key.removeprefix(KEY_PREFIX))
    signed = f"{identifier}.{timestamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.new(secret, signed, hashlib.sha256).digest()).decode()


def headers_of(key: str, identifier: str, body: bytes, now: datetime) -> Headers:
    timestamp = int(now.timestamp())
    return [
        ("Content-Type", "application/json"),
        ("User-Agent", "Motley"),
        ("webhook-id", identifier),
        ("webhook-timestamp", str(timestamp)),
        ("webhook-signature", signature(key, identifier, timestamp, body)),
    ]


def post_webhook(
    url: str, key: str, message: Mapping[str, Any], now: datetime, *, allowed: Sequence[Network]
) -> Outcome:
    """Send one message; any status from 200 to 299 means that it was accepted."""
    body = json.dumps(message).encode()
    headers = headers_of(key, str(message["id"]), body, now)
    try:
        return outcome_of(_status(url, headers, body, allowed))
    except AddressRefused as error:
        return Outcome(sent=False, error=str(error), final=True)
    except (httpcore.TimeoutException, httpcore.NetworkError, httpcore.ProtocolError) as error:
        return Outcome(sent=False, error=f"{type(error).__name__}: the server could not be reached or did not answer.")


def outcome_of(status: int) -> Outcome:
    """Outcome by status: a refusal of this message is final; a redirect, a server error or a rate limit is not."""
    if 200 <= status < 300:
        return Outcome(sent=True)
    final = 400 <= status < 500 and status not in (TOO_MANY, REQUEST_TIMEOUT)
    why = ", a redirect, which is not followed" if 300 <= status < 400 else ""
    return Outcome(sent=False, error=f"The server answered with {status}{why}.", final=final)


def _status(url: str, headers: Headers, body: bytes, allowed: Sequence[Network]) -> int:
    """Status of the response, whose body is not read."""
    encrypted = urlsplit(url).scheme == "https"
    backend = GuardedBackend(allowed, encrypted=encrypted, longest_s=LONGEST_S)
    with (
        httpcore.ConnectionPool(network_backend=backend) as pool,
        pool.stream("POST", url, headers=headers, content=body) as response,
    ):
        return int(response.status)
