"""Commands about notifications: manage their targets, and list and resend notifications."""

from enum import StrEnum
from itertools import islice
from typing import Annotated

import typer

from motley_command.completion import teams
from motley_command.lookup import connect
from motley_command.tables.notifications import notifications_table, targets_table
from motley_command.terminal import Output, OutputOption, emit, now, sanitized, say, warn

notifications = typer.Typer(
    no_args_is_help=True, help="List, add, test and remove targets of notifications: mail, Slack, webhooks."
)
MOST_SENT = 50
NumberArgument = Annotated[int, typer.Argument(metavar="TARGET", help="Number of the target, as listed.")]
TeamOption = Annotated[
    str | None, typer.Option(help="Of this team, for its leads; default: your own.", autocompletion=teams)
]


class Kind(StrEnum):
    MAIL = "mail"
    SLACK = "slack"
    WEBHOOK = "webhook"


class Event(StrEnum):
    JOB_ENDED = "job_ended"
    JOB_FAILED = "job_failed"
    RETRIES_USED = "retries_used"
    RUN_REFUSED = "run_refused"
    FAILED_SHARE = "failed_share"
    JOB_WAITS = "job_waits"
    NODE_LOST = "node_lost"


EventOption = Annotated[
    list[Event] | None, typer.Option("--event", "-e", help="What it is told of; repeat. Default: job_failed.")
]


@notifications.command("list")
def list_targets(context: typer.Context, output: OutputOption = Output.TABLE) -> None:
    """List your targets and those of your teams, without what is secret in their addresses."""
    with connect(context) as client:
        found = list(client.notification_targets())
    emit(output, found, names=[str(one["id"]) for one in found], table=lambda: targets_table(found, now=now()))


@notifications.command()
def add(
    context: typer.Context,
    kind: Annotated[Kind, typer.Argument(help="How it is told.")],
    address: Annotated[str, typer.Argument(help="Mail address, or URL of a webhook; - reads it from standard input.")],
    *,
    event: EventOption = None,
    team: TeamOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Add a target. Of a webhook the key that signs its messages is printed once."""
    text = typer.get_text_stream("stdin").readline().strip() if address == "-" else address
    with connect(context) as client:
        made = client.add_notification_target(kind.value, text, _events(event), team=team)
    if output is not Output.TABLE:
        emit(output, made, names=[str(made["id"])], table=lambda: "")
        return
    say(sanitized(f"The target {made['id']} is added: {made['kind']} {made['address']}."))
    if made["key"]:
        say(made["key"])
        warn("Save the key now: it signs the messages, and is never shown again.")


@notifications.command()
def change(context: typer.Context, target: NumberArgument, *, event: EventOption = None) -> None:
    """Change the events that a target is notified of."""
    with connect(context) as client:
        changed = client.change_notification_target(target, _events(event))
    say(sanitized(f"The target {target} is told of: {', '.join(changed['events'])}."))


@notifications.command()
def test(context: typer.Context, target: NumberArgument) -> None:
    """Send a target a test; motley notifications sent shows what becomes of it."""
    with connect(context) as client:
        client.test_notification_target(target)
    say(f"A test to the target {target} is on its way: see motley notifications sent.")


@notifications.command()
def remove(context: typer.Context, target: NumberArgument) -> None:
    """Remove a target, with its notifications."""
    with connect(context) as client:
        client.delete_notification_target(target)
    say(f"The target {target} is removed.")


@notifications.command()
def sent(context: typer.Context, output: OutputOption = Output.TABLE) -> None:
    """List the last 50 notifications: sent, pending or given up, with what went wrong."""
    with connect(context) as client:
        found = list(islice(client.notifications(), MOST_SENT))
    emit(output, found, names=[one["id"] for one in found], table=lambda: notifications_table(found, now=now()))


@notifications.command()
def resend(
    context: typer.Context,
    notification: Annotated[str, typer.Argument(help="Id of a notification that was given up, as in sent -o name.")],
) -> None:
    """Send a notification again that was given up."""
    with connect(context) as client:
        client.resend_notification(notification)
    say(sanitized(f"{notification} is on its way again."))


def _events(chosen: list[Event] | None) -> list[str]:
    return [event.value for event in chosen or [Event.JOB_FAILED]]
