"""The user of the token: tokens, secrets, notifications."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import cast

from motley_client.connection import Connection, url_path, without_empty
from motley_client.responses import (
    Me,
    NewNotificationTarget,
    NewToken,
    Notification,
    NotificationTarget,
    Scope,
    Secret,
    Token,
)


class AccountRoutes(Connection):
    """The user of the token: tokens, secrets, notifications."""

    def secrets(self) -> Iterator[Secret]:
        """Your secrets and those of your teams, without their values."""
        return cast("Iterator[Secret]", self._pages("secrets", {}))

    def set_secret(self, name: str, value: str, *, team: str | None = None) -> Secret:
        """Set a secret for your jobs or, with `team`, for those of the team; it replaces the value before."""
        return cast("Secret", self._json("POST", "secrets", json={"name": name, "value": value, "team": team}))

    def delete_secret(self, secret_id: int) -> None:
        """Delete a secret. Jobs that name it and have not started fail when they start."""
        self._send("DELETE", url_path("secrets", secret_id))

    def notification_targets(self) -> Iterator[NotificationTarget]:
        """Your targets of notifications and those of your teams, without what is secret in their addresses."""
        return cast("Iterator[NotificationTarget]", self._pages("notification-targets", {}))

    def add_notification_target(
        self, kind: str, address: str, events: Sequence[str], *, team: str | None = None
    ) -> NewNotificationTarget:
        """Add a target of yours or, with `team`, of that team, for its leads. Only this answer contains its key."""
        body = {"kind": kind, "address": address, "events": list(events), "team": team}
        return cast("NewNotificationTarget", self._json("POST", "notification-targets", json=body))

    def change_notification_target(self, target_id: int, events: Sequence[str]) -> NotificationTarget:
        """Change the events that a target is notified of."""
        path = url_path("notification-targets", target_id)
        return cast("NotificationTarget", self._json("PATCH", path, json={"events": list(events)}))

    def test_notification_target(self, target_id: int) -> None:
        """Send a target a test; `notifications` has what becomes of it."""
        self._send("POST", url_path("notification-targets", target_id, "test"))

    def delete_notification_target(self, target_id: int) -> None:
        """Delete a target, with its notifications."""
        self._send("DELETE", url_path("notification-targets", target_id))

    def notifications(self) -> Iterator[Notification]:
        """Notifications to the targets that you may see, newest first."""
        return cast("Iterator[Notification]", self._pages("notifications", {}))

    def resend_notification(self, notification_id: str) -> None:
        """Send a notification again that was given up."""
        self._send("POST", url_path("notifications", notification_id, "send"))

    def me(self) -> Me:
        """The user of this token, with teams and scope."""
        return cast("Me", self._json("GET", "me"))

    def tokens(self) -> Iterator[Token]:
        """Your API tokens."""
        return cast("Iterator[Token]", self._pages("tokens", {}))

    def token(self, token_id: int) -> Token:
        """One of your API tokens."""
        return cast("Token", self._json("GET", url_path("tokens", token_id)))

    def create_token(
        self,
        name: str,
        *,
        scope: str = Scope.SUBMIT,
        expires_in: str | None = None,
        expires_at: datetime | str | None = None,
    ) -> NewToken:
        """Create an API token that expires `in` 30d, `at` a time, or never. Only this answer contains its text."""
        body = without_empty({"name": name, "scope": str(scope), "expires_in": expires_in, "expires_at": expires_at})
        return cast("NewToken", self._json("POST", "tokens", json=body))

    def revoke_token(self, token_id: int) -> None:
        """Revoke one of your API tokens."""
        self._send("DELETE", url_path("tokens", token_id))
