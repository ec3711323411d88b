"""Who asks, and by which tokens."""

from collections.abc import Iterator
from datetime import datetime
from typing import cast

from motley_client.answers import Me, NewToken, Scope, Token
from motley_client.calls.connection import Connection, given, place


class AccountCalls(Connection):
    def me(self) -> Me:
        return cast("Me", self._json("GET", "me"))

    def tokens(self) -> Iterator[Token]:
        """Your own."""
        return cast("Iterator[Token]", self._pages("tokens", {}))

    def token(self, token_id: int) -> Token:
        return cast("Token", self._json("GET", place("tokens", token_id)))

    def create_token(
        self,
        name: str,
        *,
        scope: str = Scope.SUBMIT,
        expires_in: str | None = None,
        expires_at: datetime | str | None = None,
    ) -> NewToken:
        """A new token, whose text is in this answer and nowhere else. It expires `in` 30d, `at` a time, or never."""
        body = given({"name": name, "scope": str(scope), "expires_in": expires_in, "expires_at": expires_at})
        return cast("NewToken", self._json("POST", "tokens", json=body))

    def revoke_token(self, token_id: int) -> None:
        self._send("DELETE", place("tokens", token_id))
