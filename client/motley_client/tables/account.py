"""Tokens, and who one is."""

from collections.abc import Iterable
from datetime import datetime

from rich.console import RenderableType

from motley_client.answers import Me, Token
from motley_client.tables.drawing import age, facts, table, until


def tokens_table(tokens: Iterable[Token], *, now: datetime) -> RenderableType:
    rows = [
        (
            token["name"],
            str(token["id"]),
            token["prefix"],
            token["scope"],
            age(token["created_at"], now),
            age(token["used_at"], now) or "never",
            _standing(token, now),
        )
        for token in tokens
    ]
    return table(("NAME", "ID", "BEGINS", "SCOPE", "AGE", "USED", "EXPIRES"), rows, empty="No tokens.")


def me_details(me: Me) -> RenderableType:
    return facts(
        [
            ("user", me["username"] + (" (staff)" if me["is_staff"] else "")),
            ("teams", ", ".join(me["teams"]) or "none: ask an administrator to add you to one"),
            ("token", f"{me['token']}… of scope {me['scope']}" if me["token"] else ""),
        ]
    )


def _standing(token: Token, now: datetime) -> str:
    if token["revoked_at"]:
        return f"revoked {age(token['revoked_at'], now)} ago"
    return until(token["expires_at"], now).replace("now", "expired") if token["expires_at"] else "never"
