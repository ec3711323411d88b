"""Tables of API tokens, of secrets, of members of a team and their starts, and of the user."""

from collections.abc import Iterable
from datetime import datetime

from rich.console import RenderableType

from motley_client.responses import Me, Member, Secret, StartStage, Token
from motley_command.tables.format import age, duration, key_values, table, three_digits, until


def tokens_table(tokens: Iterable[Token], *, now: datetime) -> RenderableType:
    rows = [
        (
            token["name"],
            str(token["id"]),
            token["prefix"],
            token["scope"],
            age(token["created_at"], now),
            age(token["used_at"], now) or "never",
            _expiry(token, now),
        )
        for token in tokens
    ]
    return table(("NAME", "ID", "PREFIX", "SCOPE", "AGE", "LAST USED", "EXPIRES"), rows, empty="No tokens.")


def secrets_table(secrets: Iterable[Secret], *, now: datetime) -> RenderableType:
    rows = [
        (
            one["name"],
            f"team {one['team']}" if one["team"] else "your jobs",
            age(one["changed_at"], now),
            one["changed_by"] or "",
        )
        for one in secrets
    ]
    return table(("NAME", "FOR", "AGE", "SET BY"), rows, empty="No secrets: set one by motley secret set NAME.")


def starts_table(stages: Iterable[StartStage]) -> RenderableType:
    rows = [
        (
            one["stage"],
            "restarts" if one["restart"] else "first starts",
            str(one["starts"]),
            duration(one["p50_seconds"]),
            duration(one["p90_seconds"]),
        )
        for one in stages
    ]
    return table(("STAGE", "OF", "STARTS", "MEDIAN", "9 OF 10 WITHIN"), rows, empty="No start has ended in seven days.")


def members_table(members: Iterable[Member]) -> RenderableType:
    rows = [
        (
            one["username"],
            _role(one),
            str(one["gpus"]),
            three_digits(one["gpu_hours"]),
            str(one["running"]),
            str(one["waiting"]),
        )
        for one in members
    ]
    return table(
        ("NAME", "ROLE", "GPUS NOW", "GPU-HOURS", "RUNNING", "WAITING"), rows, empty="The team has no members."
    )


def _role(member: Member) -> str:
    if not member["is_member"]:
        return "has left"
    role = "lead" if member["is_lead"] else "member"
    return f"{role}, invited" if member["invited"] else role


def me_details(me: Me) -> RenderableType:
    without = "none" if me["is_staff"] else "none: ask an administrator to add you to one"
    return key_values(
        [
            ("user", me["username"] + (" (staff)" if me["is_staff"] else "")),
            ("teams", ", ".join(me["teams"]) or without),
            ("default team", (me.get("default_team") or "") if len(me["teams"]) > 1 else ""),
            ("token", f"{me['token']}… (scope {me['scope']})" if me["token"] else ""),
        ]
    )


def _expiry(token: Token, now: datetime) -> str:
    if token["revoked_at"]:
        return f"revoked {age(token['revoked_at'], now)} ago"
    return until(token["expires_at"], now).replace("now", "expired") if token["expires_at"] else "never"
