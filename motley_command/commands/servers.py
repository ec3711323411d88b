"""Commands about the site's own servers."""

import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Annotated

import typer

from motley_client.client import Client
from motley_client.errors import MotleyError
from motley_client.responses import Node
from motley_command.commands.cluster import drain, resume
from motley_command.completion import nodes as known_nodes
from motley_command.configuration import ConfigurationError
from motley_command.lookup import connect
from motley_command.server_setup import Found, faults_among, install, look_again, look_at, number_for, why_not_from
from motley_command.tables.servers import server_table, servers_table
from motley_command.terminal import Output, OutputOption, WatchOption, emit, now, present, sanitized, say, warn

server = typer.Typer(no_args_is_help=True, help="Servers without Slurm: add them by ssh, list, show, drain, revoke.")
AT_ONCE = 16

server.command("drain")(drain)
server.command("resume")(resume)


@server.command("list")
def list_servers(context: typer.Context, *, watch: WatchOption = False, output: OutputOption = Output.TABLE) -> None:
    """List the servers: whether they are heard, what runs there, their agents. Administrators only."""
    with connect(context) as client:
        present(
            lambda: list(client.servers()),
            output=output,
            watch=watch,
            names=lambda servers: [one["name"] for one in servers],
            table=lambda servers: servers_table(servers, _nodes(client), now=now()),
        )


@server.command()
def show(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="SERVER", autocompletion=known_nodes)],
    *,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show a server: its agent, what it found when it last checked its server, and the node. Administrators only."""
    with connect(context) as client:
        found = client.server(name)
        emit(output, found, names=[name], table=lambda: server_table(found, _nodes(client).get(name), now=now()))


@server.command()
def update(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="SERVER", autocompletion=known_nodes)],
) -> None:
    """Have a server try the update again that failed there. Administrators only."""
    with connect(context) as client:
        client.update_server(name)
        say(f"{sanitized(name)} tries the update again: motley server show {sanitized(name)}")


@server.command()
def revoke(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="SERVER", autocompletion=known_nodes)],
    *,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Ask nothing, though jobs run there.")] = False,
) -> None:
    """Revoke the tokens of a server: its agent stops its jobs, and ends. Drain it first. Administrators only."""
    with connect(context) as client:
        if not yes:
            _agree_to_stop(client, name)
        client.revoke_server(name)
        said = "its jobs are stopped at the next message of its agent, which ends"
        retire = sanitized(f"motley retire {name} --reason ...")
        say(f"{sanitized(name)}: revoked; {said}. To take it off the lists: {retire}")


def _agree_to_stop(client: Client, name: str) -> None:
    """Have an administrator agree that the jobs of this server are stopped; asks nothing of one without jobs."""
    node = _nodes(client).get(name)
    if node is None or not node["jobs_running"]:
        return
    client.server(name)  # one that is not there, or is not this person's to revoke, stops no job
    jobs = f"{node['jobs_running']} job{'s' if node['jobs_running'] > 1 else ''}"
    said = sanitized(
        f"{jobs} on {name} would be stopped: motley drain {name} --reason ... --wait moves them away first."
    )
    if not sys.stdin.isatty():
        raise ConfigurationError(f"{said} To revoke it all the same, give --yes.")
    warn(said)
    typer.confirm(f"Revoke {sanitized(name)} now?", abort=True, err=True)


def _nodes(client: Client) -> dict[str, Node]:
    return {node["name"]: node for node in client.nodes()}


@server.command()
def add(
    context: typer.Context,
    destinations: Annotated[
        list[str], typer.Argument(metavar="[USER@]HOST...", help="Servers, as ssh names them; as root.")
    ],
    *,
    name: Annotated[str, typer.Option(help="Name of the node. Default: that of the host; for one server alone.")] = "",
    address: Annotated[
        str, typer.Option(help="IPv4 address on the network that trainings use; for one server alone.")
    ] = "",
    gpus: Annotated[str, typer.Option(help="Emulated GPUs for a trial, as k80:4.")] = "",
    job_user: Annotated[str, typer.Option(help="Account of jobs that name none.")] = "motley-job",
    job_path: Annotated[str, typer.Option(help="Put before the PATH of jobs: where their python is.")] = "",
    check: Annotated[bool, typer.Option("--check", help="Check alone.")] = False,
    insecure_http: Annotated[
        bool,
        typer.Option(
            "--insecure-http",
            help="For a trial on this machine alone: run as root what answers at the service's address of loopback.",
        ),
    ] = False,
) -> None:
    """Check servers, and make them nodes of the cluster if all is in order on all. Administrators only."""
    if name and len(destinations) > 1:
        raise typer.BadParameter("Give --name for one server alone.")
    if address and len(destinations) > 1:
        raise typer.BadParameter("Give --address for one server alone.")
    named = [("--address", address), ("--job-user", job_user), ("--gpus", gpus), ("--job-path", job_path)]
    options = [word for option, value in named if value for word in (option, value)]
    with connect(context) as client:
        if reason := why_not_from(client.url, destinations, over_http=insecure_http):
            raise ConfigurationError(reason)
        found = _checked(client, destinations, name, options)
        if (number := number_for(found)) is not None:
            options += ["--job-uid", str(number)]
        if not check:
            _add(client, found, _tokens_to_join(client, found, options), options)


def _checked(client: Client, destinations: Sequence[str], name: str, options: Sequence[str]) -> list[Found]:
    """Look at all servers at once; exits where something is wrong on one."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = list(pool.map(partial(look_at, url=client.url, options=options), dict.fromkeys(destinations)))
    servers = [one._replace(name=name or one.name) for one in found]
    faults = faults_among(servers, {node["name"] for node in client.nodes()})
    for one in servers:
        for line in one.lines:
            say(sanitized(f"{one.name}  ok    {line}"))
    _exit_with(servers, faults)
    return servers


def _exit_with(servers: Sequence[Found], faults: Mapping[str, Sequence[str]]) -> None:
    """Tell the faults by destination, and exit if there are any."""
    for one in servers:
        for fault in faults.get(one.destination, ()):
            warn(sanitized(f"{one.name}  FAIL  {fault}"))
    if faults:
        warn("Nothing was written.")
        raise typer.Exit(1)


def _tokens_to_join(client: Client, servers: Sequence[Found], options: Sequence[str]) -> dict[str, str]:
    """Tokens by destination, with which all servers may join; where one may not, exit and make them useless."""
    tokens: dict[str, str] = {}
    try:
        for one in servers:
            tokens[one.destination] = client.add_server(one.name)["token"]
        _may_join(client, servers, tokens, options)
    except BaseException:  # Ctrl-C, too: a token that stays valid lets anybody who has seen it join
        for one in servers:
            if one.destination in tokens:
                with suppress(MotleyError):
                    client.revoke_server(one.name)
        raise
    return tokens


def _may_join(client: Client, servers: Sequence[Found], tokens: Mapping[str, str], options: Sequence[str]) -> None:
    """Ask the service, by each server, whether it may join; where one may not, exit."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        look = partial(look_again, url=client.url, options=options)
        found = list(pool.map(lambda one: look(one.destination, token=tokens[one.destination]), servers))
    faults = {one.destination: again.faults for one, again in zip(servers, found, strict=True) if again.faults}
    _exit_with(servers, faults)


def _add(client: Client, servers: Sequence[Found], tokens: Mapping[str, str], options: Sequence[str]) -> None:
    failed = False
    for one in servers:
        done = install(one.destination, client.url, tokens[one.destination], options)
        failed |= done.returncode != 0
        lines = (done.stdout if done.returncode == 0 else done.stdout + done.stderr).strip().splitlines()
        for line in lines:
            (say if done.returncode == 0 else warn)(sanitized(f"{one.name}  {line}"))
    if failed:
        raise typer.Exit(1)
