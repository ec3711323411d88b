"""The commands `motley ssh-config` and `motley ssh-proxy`: SSH, VS Code and PyCharm in running jobs."""

from pathlib import Path
from typing import Annotated

import typer

from motley_client.client import Client
from motley_client.errors import Conflict
from motley_client.sessions import attach, output_of
from motley_command.commands.sessions import RankOption
from motley_command.completion import JobArgument
from motley_command.lookup import connect, find_job
from motley_command.ssh import (
    ACCOUNT,
    LOOK,
    NO_SERVER,
    NO_SHELL,
    PREFIX,
    add_include,
    host_of,
    include_line,
    public_key,
    server_command,
    write_host,
)
from motley_command.terminal import sanitized, say


def ssh_config(
    context: typer.Context,
    job: JobArgument,
    *,
    add: Annotated[
        bool, typer.Option("--add", help="Also write the line that includes it into ~/.ssh/config.")
    ] = False,
) -> None:
    """Write what ssh, VS Code and PyCharm need to log in to a running job as motley-JOB. Examples:

    motley ssh-config notebook --add

    ssh motley-notebook

    The job, or its container, must have OpenSSH's server (openssh-server), which need not run. The name stays: it
    leads to the running job of that name.
    """
    with connect(context) as client:
        found = find_job(client, job)
        account = _account_in(client, found["id"])
    host = host_of(found["name"], found["id"])
    path = write_host(host, account)
    if add:
        add_include(Path.home() / ".ssh" / "config")
        say(sanitized(f"ssh {host}"))
        return
    say(f"Written to {path}. Give ~/.ssh/config this first line, or repeat with --add:")
    say(f"  {include_line()}")
    say(sanitized(f"Then: ssh {host}, and in VS Code Remote-SSH: Connect to Host, {host}."))


def ssh_proxy(
    context: typer.Context, host: Annotated[str, typer.Argument(help="Host, as ssh names it.")], *, rank: RankOption = 0
) -> None:
    """Carry SSH to a running job on the standard streams: the ProxyCommand of `ssh`."""
    with connect(context) as client:
        found = find_job(client, host.removeprefix(PREFIX))
        request = {"argv": server_command(public_key()), "terminal": None}
        with client.open_session(found["id"], request, rank=rank) as session:
            raise typer.Exit(attach(session, terminal=False))


def _account_in(client: Client, job: str) -> str:
    """The account of the job; raises `Conflict` if it has no SSH server."""
    with client.open_session(job, {"argv": ["/bin/sh", "-c", LOOK], "terminal": None}) as session:
        code, out, errors = output_of(session)
    if code == NO_SERVER:
        tool = errors.strip().splitlines()[-1] if errors.strip() else "sshd"
        raise Conflict(f"There is no {tool} where the job runs: install openssh-server there, or in the job's image.")
    if code == NO_SHELL:
        text = (
            "has no login shell, and may not make a namespace of its own: give it one (chsh), or allow user namespaces."
        )
        raise Conflict(f"The job's account {text}")
    if code or not out.strip():
        raise Conflict(
            f"The account of the job has no name, as sshd needs it: {errors.strip() or f'exit code {code}'}."
        )
    if not ACCOUNT.fullmatch(name := out.strip()):
        raise Conflict(f"The account of the job is called {name!r}, which ssh cannot use as the name of a user.")
    return name
