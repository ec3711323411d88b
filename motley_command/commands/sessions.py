"""The commands `motley exec` and `motley port`."""

import shlex
import socket
from collections.abc import Sequence
from typing import Annotated

import typer

from motley_client.sessions import Forwarding, attach, terminal_here
from motley_client.spec import SpecError
from motley_client.web_ports import host_beside
from motley_command.completion import JobArgument
from motley_command.lookup import connect, find_job
from motley_command.terminal import sanitized, say, warn

HERE = "127.0.0.1"
RankOption = Annotated[int, typer.Option(min=0, help="Rank of the node within the gang.")]


def execute(context: typer.Context, job: JobArgument, *, rank: RankOption = 0) -> None:
    """Run a command beside a running job, as the job sees its node; without one, a shell. Examples:

    motley exec resnet

    motley exec resnet -- nvidia-smi

    motley exec resnet -- "nvidia-smi | grep MiB"

    One word after -- is a line of the shell, as in submit. The exit code is the command's. The command ends with the
    job.
    """
    words = in_the_shell(context.meta["command"])
    with connect(context) as client:
        found = find_job(client, job)
        terminal = terminal_here()
        request = {"argv": words or None, "terminal": terminal}
        with client.open_session(found["id"], request, rank=rank) as session:
            raise typer.Exit(attach(session, terminal=terminal is not None))


def in_the_shell(words: Sequence[str]) -> list[str]:
    """The command, of which one word that is more than a name is a line of the shell, as the command of a job is."""
    if len(words) == 1 and shlex.quote(words[0]) != words[0]:
        return ["/bin/sh", "-c", words[0]]
    return list(words)


def port(
    context: typer.Context,
    job: JobArgument,
    ports: Annotated[
        str,
        typer.Argument(
            metavar="[LOCAL:]PORT", help="Port on the job's node, and before it ours if it is another, as in ssh -L."
        ),
    ],
    *,
    rank: RankOption = 0,
) -> None:
    """Connect a port of this machine to a port of a running job, until Ctrl-C. Examples:

    motley port notebook 8888

    motley port notebook 9000:8888

    The second connects our port 9000, in the order of ssh -L, docker and kubectl. A free port is taken where ours is
    in use, and with an empty LOCAL (:8888).
    """
    theirs, ours = _ports(ports)
    with connect(context) as client, _listening(ours) as server:
        found = find_job(client, job)
        with client.open_session(found["id"], {"port": theirs}, rank=rank) as session:
            address = f"http://{host_beside(client.url)}:{server.getsockname()[1]}"
            say(f"{address} is port {theirs} of {sanitized(found['name'])}; Ctrl-C ends.")
            try:
                Forwarding(session, server, on_error=warn).run()
            except KeyboardInterrupt:
                return


def _ports(text: str) -> tuple[int, int]:
    """Port of the job, and ours: `8888`, or `9000:8888` with ours first; 0 or nothing in its place: any free one."""
    ours, colon, theirs = text.rpartition(":")
    numbers = [int(part) if part.isdecimal() else -1 for part in (theirs, (ours or "0") if colon else theirs)]
    if not (1 <= numbers[0] <= 65_535 and 0 <= numbers[1] <= 65_535):
        raise SpecError(f"{text}: expected the job's port, e.g. 8888, or ours and the job's, e.g. 9000:8888.")
    return numbers[0], numbers[1]


def _listening(number: int) -> socket.socket:
    """Our port, or a free one where that is in use."""
    try:
        return socket.create_server((HERE, number))
    except OSError as error:
        warn(f"Port {number} of this machine cannot be used ({error.strerror}): a free one is taken.")
        return socket.create_server((HERE, 0))
