"""The `motley history` commands: jobs that ran, as a trace for the simulator."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer

from motley_command.lookup import connect
from motley_command.terminal import now, say

MOMENTS = ["%Y-%m-%d", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S"]

history = typer.Typer(no_args_is_help=True, help="Export the jobs that ran as a trace.")


@history.callback()
def _group() -> None:
    """Export the jobs that ran as a trace."""


@history.command()
def export(
    context: typer.Context,
    *,
    out: Annotated[Path, typer.Option("--out", "-o", dir_okay=False, metavar="FILE", help="File to write.")],
    days: Annotated[int | None, typer.Option(min=1, max=366, help="The last N days; default: 7.")] = None,
    since: Annotated[
        datetime | None, typer.Option("--from", formats=MOMENTS, help="First submission, UTC; in place of --days.")
    ] = None,
    until: Annotated[datetime | None, typer.Option("--to", formats=MOMENTS, help="End, UTC; default: now.")] = None,
    anonymise: Annotated[
        bool, typer.Option("--anonymise", help="Numbers in place of the names of jobs, teams and workloads.")
    ] = False,
) -> None:
    """Write the jobs of your teams that ran and have ended to a file.

    motley history export --days 7 -o week.csv; motley simulate compare week.csv --format csv --cluster ...
    """
    if days is not None and since is not None:
        raise typer.BadParameter("give either --days or --from", param_hint="--days")
    until = until.replace(tzinfo=UTC) if until else None
    first = since.replace(tzinfo=UTC) if since else (until or now()) - timedelta(days=days or 7)
    with connect(context) as client:
        out.write_bytes(client.history(since=first, until=until, anonymise=anonymise))
    say(f"{out}: a trace in Motley's format, for motley simulate --format csv.")
