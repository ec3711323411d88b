"""Commands about windows of nodes: list, add a maintenance, reserve GPUs for a team, delete."""

from typing import Annotated, Any

import typer

from motley_client.spec import pairs_of
from motley_command.begin_time import FORMS, time_of
from motley_command.completion import gpu_types, teams
from motley_command.completion import nodes as known_nodes
from motley_command.lookup import connect
from motley_command.tables.cluster import windows_table
from motley_command.terminal import Output, OutputOption, emit, now, sanitized, say

window = typer.Typer(
    no_args_is_help=True, help="List, add and delete windows of nodes: maintenance, and GPUs reserved for a team."
)
FromOption = Annotated[str, typer.Option("--from", metavar="TIME", help=f"When it begins: {FORMS}.")]
ToOption = Annotated[str, typer.Option("--to", metavar="TIME", help="When it ends, in the same forms.")]
ReasonOption = Annotated[
    str, typer.Option("--reason", "-r", help="Reason, shown to the owners of jobs that wait or are stopped.")
]
CronOption = Annotated[
    str | None,
    typer.Option(help="When it begins again, for as long: minute, hour, day, month, weekday, e.g. '0 2 * * 0'."),
]
ZoneOption = Annotated[str | None, typer.Option(help="Time zone of --cron, e.g. Europe/Berlin. Default: UTC.")]
UntilOption = Annotated[str | None, typer.Option(metavar="TIME", help="It does not begin again from then on.")]


@window.command("list")
def list_windows(context: typer.Context, output: OutputOption = Output.TABLE) -> None:
    """List current and future windows, with times in the time zone of this machine."""
    with connect(context) as client:
        found = list(client.windows())
    emit(output, found, names=[str(one["id"]) for one in found], table=lambda: windows_table(found))


@window.command()
def add(
    context: typer.Context,
    nodes: Annotated[
        list[str] | None, typer.Argument(metavar="[NODE]...", help="Names of nodes.", autocompletion=known_nodes)
    ] = None,
    *,
    label: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Also the nodes that have this label; repeat: all of them."),
    ] = None,
    begin: FromOption,
    end: ToOption,
    reason: ReasonOption,
    cron: CronOption = None,
    zone: ZoneOption = None,
    until: UntilOption = None,
) -> None:
    """Add a maintenance window: jobs on its nodes are stopped in time to save their work. Administrators only."""
    of_nodes = {"nodes": nodes, "labels": pairs_of("--label", label or [])}
    _add(context, {**of_nodes, **_times(begin, end, cron, zone, until), "reason": reason})


@window.command()
def reserve(
    context: typer.Context,
    *,
    team: Annotated[str, typer.Option(help="The team whose jobs alone may use them.", autocompletion=teams)],
    gpu_type: Annotated[str, typer.Option(metavar="TYPE", help="GPU type.", autocompletion=gpu_types)],
    gpus: Annotated[int, typer.Option(help="Number of GPUs, in whole nodes: the fewest that have so many.")],
    begin: FromOption,
    end: ToOption,
    reason: ReasonOption,
    cron: CronOption = None,
    zone: ZoneOption = None,
    until: UntilOption = None,
) -> None:
    """Reserve GPUs for a team: jobs of other teams are stopped in time to save their work. Administrators only."""
    asked = {"team": team, "gpu_type": gpu_type, "gpus": gpus}
    _add(context, {**asked, **_times(begin, end, cron, zone, until), "reason": reason})


@window.command()
def delete(context: typer.Context, number: Annotated[int, typer.Argument(help="As in motley window list.")]) -> None:
    """Delete a window; nodes that are drained for it return to service. Administrators only."""
    with connect(context) as client:
        client.delete_window(number)
    say(f"The window {number} is deleted.")


def _times(begin: str, end: str, cron: str | None, zone: str | None, until: str | None) -> dict[str, Any]:
    """The fields of when it is."""
    options = {"begins_at": ("--from", begin), "ends_at": ("--to", end), "repeats_until": ("--until", until)}
    times = {field: time_of(text, now(), option) for field, (option, text) in options.items() if text}
    return {**times, "cron": cron, "zone": zone}


def _add(context: typer.Context, fields: dict[str, Any]) -> None:
    with connect(context) as client:
        made = client.add_window({name: value for name, value in fields.items() if value not in (None, [], {})})
    say(sanitized(f"The window {made['id']} is added: {made['kind']}, {made['reason']}."))
