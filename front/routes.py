"""Kinds of requests: by its kind a request waits for a place at one of the servers behind the front."""

import re
from collections.abc import Mapping
from enum import Enum

JOB = r"/api/v1/jobs/[0-9a-f-]{36}"
SESSION = re.compile(JOB + "/session|/api/v1/agent/sessions/[0-9a-f]{32}")
EVENTS = re.compile(JOB + "/logs")
KEPT = re.compile("/livez|/readyz|/healthz/scheduler|/api/v1/agent/(sync|join)")


class Kind(Enum):
    KEPT = "kept"
    """Probes, and messages of agents."""
    SHORT = "short"
    BULK = "bulk"
    """A body that is too large to be read before the request is forwarded."""
    LONG = "long"
    """A session or a stream of events."""


def kind_of(target: str, headers: Mapping[str, str]) -> Kind:
    """Kind by address and header fields, with names in lower case."""
    path = target.partition("?")[0]
    if KEPT.fullmatch(path):
        return Kind.KEPT
    return Kind.LONG if wants_websocket(path, headers) or wants_events(path, headers) else Kind.SHORT


def wants_websocket(path: str, headers: Mapping[str, str]) -> bool:
    return bool(SESSION.fullmatch(path)) and "websocket" in headers.get("upgrade", "").lower()


def wants_events(path: str, headers: Mapping[str, str]) -> bool:
    return bool(EVENTS.fullmatch(path)) and "text/event-stream" in headers.get("accept", "").lower()
