"""The commands `motley exec` and `motley port`."""

import socket
from typing import Annotated

import typer

from motley_client.completion import JobArgument
from motley_client.lookup import connect, find_job
from motley_client.sessions import Forwarding, attach, terminal_here
from motley_client.spec import SpecError
from motley_client.terminal import sanitized, say, warn

HERE = "127.0.0.1"
RankOption = Annotated[int, typer.Option(min=0, help="Rank of the node within the gang.")]


def execute(context: typer.Context, job: JobArgument, *, rank: RankOption = 0) -> None:
    """Run a command beside a running job, as the job sees its node; without one, a shell. Examples:

    motley exec resnet

    motley exec resnet -- nvidia-smi

    The exit code is the command's. The command ends with the job.
    """
    words = context.meta["command"]
    with connect(context) as client:
        found = find_job(client, job)
        terminal = terminal_here()
        request = {"argv": words or None, "terminal": terminal}
        with client.open_session(found["id"], request, rank=rank) as session:
            raise typer.Exit(attach(session, terminal=terminal is not None))


def port(
    context: typer.Context,
    job: JobArgument,
    ports: Annotated[
        str, typer.Argument(metavar="PORT[:LOCAL]", help="Port on the job's node, and ours if it is another.")
    ],
    *,
    rank: RankOption = 0,
) -> None:
    """Connect a port of this machine to a port of a running job, until Ctrl-C. Example: motley port notebook 8888"""
    theirs, ours = _ports(ports)
    with connect(context) as client, _listening(ours) as server:
        found = find_job(client, job)
        with client.open_session(found["id"], {"port": theirs}, rank=rank) as session:
            say(f"http://{HERE}:{server.getsockname()[1]} is port {theirs} of {sanitized(found['name'])}; Ctrl-C ends.")
            try:
                Forwarding(session, server, on_error=warn).run()
            except KeyboardInterrupt:
                return


def _ports(text: str) -> tuple[int, int]:
    """Port of the job, and ours: `8888`, or `8888:9999`."""
    theirs, _, ours = text.partition(":")
    numbers = [int(part) if part.isdecimal() else -1 for part in (theirs, ours or theirs)]
    if not (1 <= numbers[0] <= 65_535 and 0 <= numbers[1] <= 65_535):
        raise SpecError(f"{text}: expected a port, e.g. 8888, or the job's and ours, e.g. 8888:9999.")
    return numbers[0], numbers[1]


def _listening(number: int) -> socket.socket:
    try:
        return socket.create_server((HERE, number))
    except OSError as error:
        text = f"Port {number} of this machine cannot be used ({error.strerror}): give another, as PORT:LOCAL."
        raise SpecError(text) from error
