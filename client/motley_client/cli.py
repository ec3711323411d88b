"""The `motley` command."""

import time
from collections.abc import Callable
from importlib.metadata import version as version_of
from itertools import islice
from typing import Annotated, Any, NoReturn

import typer
from rich.live import Live
from typer.core import TyperGroup

from motley_client.answers import ACTIVE_STATES, Job
from motley_client.client import Client
from motley_client.configuration import ConfigurationError
from motley_client.errors import AuthError, Conflict, InvalidRequest, MotleyError, NotFound, ServerError, Unreachable
from motley_client.inert import inert
from motley_client.lookup import AmbiguousJob, connect, find_job
from motley_client.spec import SpecError
from motley_client.submit import CommandAfterDashes, detach, submit
from motley_client.tables import job_details, jobs_table, nodes_table, rounds_table
from motley_client.terminal import Output, console, emit, now, say, warn, write_log

EXIT_CODES: dict[type[Exception], int] = {
    SpecError: 2,
    ConfigurationError: 2,
    AmbiguousJob: 2,
    InvalidRequest: 2,
    AuthError: 3,
    NotFound: 4,
    Conflict: 5,
    ServerError: 6,
    Unreachable: 6,
}
WATCH_PERIOD_S = 2.0
LATEST_ROUNDS = 20


class ErrorsAsExitCodes(TyperGroup):
    """Every command may raise; what the shell sees is decided here."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except tuple(EXIT_CODES) as error:
            raise typer.Exit(explain(error)) from error


def explain(error: Exception) -> int:
    """Say what went wrong, field by field where the service did; the exit code."""
    warn(f"Error: {inert(str(error))}")
    if isinstance(error, AmbiguousJob):
        console(stderr=True).print(jobs_table(error.candidates, now=now()))
    if isinstance(error, MotleyError):
        for fault in error.errors:
            warn(inert(f"  {fault.pointer}: {fault.detail}"))
    if isinstance(error, ServerError) and error.request_id:
        warn(inert(f"  Quote the request id when you report it: {error.request_id}"))
    return EXIT_CODES[type(error)]


app = typer.Typer(cls=ErrorsAsExitCodes, no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False)
app.command(cls=CommandAfterDashes)(submit)

JobArgument = Annotated[str, typer.Argument(metavar="JOB", help="A name, or the beginning of an id.")]
OutputOption = Annotated[Output, typer.Option("--output", "-o")]


@app.callback()
def main(
    context: typer.Context,
    url: Annotated[str | None, typer.Option(help="Default: $MOTLEY_URL, then the configuration file.")] = None,
    token: Annotated[str | None, typer.Option(help="Default: $MOTLEY_TOKEN, then the configuration file.")] = None,
) -> None:
    """Submit jobs to a cluster of GPUs of mixed types, and watch over them.

    Exit codes: 0 done, 1 the job failed, 2 usage, 3 not allowed, 4 not found, 5 conflict, 6 the service failed.
    """
    context.obj = {"url": url, "token": token}


@app.command()
def ps(
    context: typer.Context,
    *,
    state: Annotated[list[str] | None, typer.Option(metavar="STATE", help="Only this; repeat it for more.")] = None,
    all_states: Annotated[bool, typer.Option("--all", "-a", help="Finished jobs too.")] = False,
    team: Annotated[str | None, typer.Option()] = None,
    limit: Annotated[int, typer.Option(min=1, help="At most so many, the newest.")] = 50,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Keep the table up to date.")] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """List jobs, the newest first; those that have not finished, unless told otherwise."""
    states = state or ([] if all_states else ACTIVE_STATES)
    with connect(context) as client:

        def newest() -> list[Job]:
            return list(islice(client.jobs(state=states, team=team), limit))

        if watch:
            watch_jobs(newest)
        jobs = newest()
    emit(output, jobs, names=[job["id"] for job in jobs], table=lambda: jobs_table(jobs, now=now()))


def watch_jobs(newest: Callable[[], list[Job]]) -> NoReturn:
    """A table that is drawn anew every other second, until Ctrl-C."""
    screen = console()
    if not screen.is_terminal:
        raise typer.BadParameter("--watch draws on a terminal, and this is none.")
    with Live(console=screen, auto_refresh=False) as live:
        try:
            while True:
                live.update(jobs_table(newest(), now=now()), refresh=True)
                time.sleep(WATCH_PERIOD_S)
        except KeyboardInterrupt:
            raise typer.Exit(0) from None


@app.command()
def show(context: typer.Context, job: JobArgument, output: OutputOption = Output.TABLE) -> None:
    """Show all of one job: its state, why it waits, and its attempts."""
    with connect(context) as client:
        found = client.job(find_job(client, job)["id"])
    emit(output, found, names=[found["id"]], table=lambda: job_details(found, now=now()))


@app.command()
def logs(
    context: typer.Context,
    job: JobArgument,
    *,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Until the job has finished.")] = False,
    stream: Annotated[str, typer.Option(help="stdout or stderr.")] = "stdout",
    rank: Annotated[int, typer.Option(min=0, help="Of the node within the gang.")] = 0,
    attempt: Annotated[int | None, typer.Option(help="Default: the latest.")] = None,
) -> None:
    """Print what a job has written. Ctrl-C while following detaches and never cancels."""
    with connect(context) as client:
        found = find_job(client, job)
        if not follow:
            write_log(client.read_logs(found["id"], stream=stream, rank=rank, attempt=attempt))
            return
        try:
            write_log(client.follow_logs(found["id"], stream=stream, rank=rank))
        except KeyboardInterrupt:
            detach(found)


@app.command()
def cancel(context: typer.Context, jobs: Annotated[list[str], typer.Argument(metavar="JOB...")]) -> None:
    """Cancel jobs. One that cannot be cancelled does not keep the others from it."""
    with connect(context) as client:
        codes = [cancel_one(client, typed) for typed in jobs]
    raise typer.Exit(next(filter(None, codes), 0))


def cancel_one(client: Client, typed: str) -> int:
    try:
        job = client.cancel(find_job(client, typed)["id"])
    except tuple(EXIT_CODES) as error:
        return explain(error)
    say(f"{inert(job['name'])} ({job['id']}): {job['state']}")
    return 0


@app.command()
def nodes(context: typer.Context, output: OutputOption = Output.TABLE) -> None:
    """List the nodes, and what is free on them."""
    with connect(context) as client:
        found = list(client.nodes())
    emit(output, found, names=[node["name"] for node in found], table=lambda: nodes_table(found))


@app.command()
def rounds(
    context: typer.Context,
    number: Annotated[int | None, typer.Argument(help="Only this round.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="At most so many, the newest.")] = LATEST_ROUNDS,
    output: OutputOption = Output.TABLE,
) -> None:
    """List the scheduler's rounds: what was decided, how well, and what a GPU of each type was worth."""
    with connect(context) as client:
        found = list(islice(client.rounds(), limit)) if number is None else [client.round(number)]
    answer = found if number is None else found[0]
    emit(output, answer, names=[str(one["number"]) for one in found], table=lambda: rounds_table(found, now=now()))


@app.command()
def version() -> None:
    """Print the version of this command."""
    say(f"motley {version_of('motley-client')}")
