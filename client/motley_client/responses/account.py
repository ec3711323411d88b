"""The user of a token: tokens, secrets, notifications."""

from enum import StrEnum
from typing import Any, TypedDict


class Scope(StrEnum):
    READ = "read"
    SUBMIT = "submit"
    ADMIN = "admin"


class NotificationTarget(TypedDict):
    """Address to which notifications go, without what is secret in it."""

    id: int
    kind: str
    address: str
    team: str | None
    user: str | None
    events: list[str]
    created_at: str
    sent_at: str | None
    failures: int
    retry_at: str | None


class NewNotificationTarget(NotificationTarget):
    """A new target: the only response that contains the key that signs its messages; empty unless it is a webhook."""

    key: str


class Notification(TypedDict):
    """One notification to one target; `state` is pending, sent or dead, which is given up."""

    id: str
    target: int
    event: str
    facts: dict[str, Any]
    state: str
    created_at: str
    due_at: str
    tries: int
    sent_at: str | None
    error: str


class Secret(TypedDict):
    """Name of a secret of a team, or of a user."""

    id: int
    name: str
    team: str | None
    user: str | None
    changed_at: str
    changed_by: str | None


class Token(TypedDict):
    id: int
    name: str
    scope: str
    prefix: str
    created_at: str
    expires_at: str | None
    used_at: str | None
    revoked_at: str | None


class NewToken(Token):
    """A new token: the only response that contains its text."""

    token: str


class Me(TypedDict):
    """The user of the request. `scope` and `token` (its prefix) are None in a browser session."""

    username: str
    is_staff: bool
    teams: list[str]
    default_team: str | None
    scope: str | None
    token: str | None
