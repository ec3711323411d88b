"""Tables of notification targets and of notifications."""

from collections.abc import Iterable
from datetime import datetime

from rich.console import RenderableType

from motley_client.responses import Notification, NotificationTarget
from motley_command.tables.format import age, table, until

NO_TARGETS = (
    "No targets: add one by motley notifications add webhook https://… or slack https://…; "
    "mail ADDRESS works where the site sends mail."
)


def targets_table(targets: Iterable[NotificationTarget], *, now: datetime) -> RenderableType:
    rows = [
        (
            str(one["id"]),
            one["kind"],
            f"team {one['team']}" if one["team"] else "your jobs",
            age(one["sent_at"], now) or "never",
            _failing(one, now),
            ", ".join(one["events"]),
            one["address"],
        )
        for one in targets
    ]
    headings = ("TARGET", "KIND", "OF", "LAST SENT", "FAILING", "EVENTS", "ADDRESS")
    return table(headings, rows, empty=NO_TARGETS)


def _failing(target: NotificationTarget, now: datetime) -> str:
    if not target["failures"]:
        return ""
    again = f", tried again {until(target['retry_at'], now)}" if target["retry_at"] else ""
    return f"{target['failures']} time{'s' if target['failures'] != 1 else ''}{again}"


def notifications_table(notifications: Iterable[Notification], *, now: datetime) -> RenderableType:
    rows = [
        (
            str(one["target"]),
            one["event"],
            "given up" if one["state"] == "dead" else one["state"],
            age(one["created_at"], now),
            str(one["tries"]),
            one["error"],
        )
        for one in notifications
    ]
    return table(("TARGET", "EVENT", "STATE", "AGE", "TRIES", "ERROR"), rows, empty="Nothing was to be sent.")
