"""The cluster: its nodes, its types of GPUs, and how fast they were found to be."""

import time
from collections.abc import Callable, Sequence
from typing import Annotated

import typer

from motley_client.answers import Node
from motley_client.client import Client
from motley_client.completion import TeamOption, gpu_types
from motley_client.completion import nodes as known_nodes
from motley_client.inert import inert
from motley_client.lookup import connect
from motley_client.tables.cluster import gpu_types_table, nodes_table, occupancy, throughputs_table
from motley_client.terminal import Output, OutputOption, WatchOption, emit, now, present, say, warn

POLL_PERIOD_S = 2.0

NodeArguments = Annotated[list[str], typer.Argument(metavar="NODE...", autocompletion=known_nodes)]
ReasonOption = Annotated[str, typer.Option("--reason", "-r", help="For everybody whose job is affected.")]
GpuTypeOption = Annotated[str | None, typer.Option(metavar="TYPE", autocompletion=gpu_types)]


def nodes(
    context: typer.Context,
    *,
    state: Annotated[str | None, typer.Option(help="ready, cordoned or draining.")] = None,
    gpu_type: GpuTypeOption = None,
    watch: WatchOption = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """List the nodes, and what is free on them."""
    with connect(context) as client:
        present(
            lambda: list(client.nodes(state=state, gpu_type=gpu_type)),
            output=output,
            watch=watch,
            names=lambda nodes: [node["name"] for node in nodes],
            table=lambda nodes: nodes_table(nodes, now=now()),
        )


def cordon(context: typer.Context, nodes: NodeArguments, *, reason: ReasonOption) -> None:
    """Start nothing new on nodes; what runs there goes on. For staff."""
    with connect(context) as client:
        _each(nodes, lambda name: client.cordon(name, reason=reason))


def drain(
    context: typer.Context,
    nodes: NodeArguments,
    *,
    reason: ReasonOption,
    wait: Annotated[bool, typer.Option("--wait", help="Until nothing runs there; Ctrl-C ends the waiting.")] = False,
) -> None:
    """Start nothing new on nodes, and move what runs there elsewhere. For staff."""
    with connect(context) as client:
        _each(nodes, lambda name: client.drain(name, reason=reason))
        if wait:
            _wait_until_empty(client, nodes)


def resume(
    context: typer.Context,
    nodes: NodeArguments,
    *,
    reason: Annotated[str, typer.Option("--reason", "-r", help="For the history.")] = "",
) -> None:
    """Use nodes again. For staff."""
    with connect(context) as client:
        _each(nodes, lambda name: client.resume(name, reason=reason))


def types(context: typer.Context, output: OutputOption = Output.TABLE) -> None:
    """List the types of GPUs, what they can do, and how many are free."""
    with connect(context) as client:
        found = list(client.gpu_types())
    emit(output, found, names=[kind["name"] for kind in found], table=lambda: gpu_types_table(found))


def rates(
    context: typer.Context,
    *,
    team: TeamOption = None,
    workload: Annotated[str | None, typer.Option()] = None,
    gpu_type: GpuTypeOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """List how fast each workload was on each type of GPU, as measured."""
    with connect(context) as client:
        found = list(client.throughputs(team=team, workload=workload, gpu_type=gpu_type))
    names = [one["workload"] for one in found]
    emit(output, found, names=dict.fromkeys(names), table=lambda: throughputs_table(found, now=now()))


def _each(names: Sequence[str], verb: Callable[[str], Node]) -> None:
    for name in names:
        _say(verb(name))


def _say(node: Node) -> None:
    still = "" if node["state"] == "ready" else f", {occupancy(node, now())}"
    say(inert(f"{node['name']}: {node['state']}{still}"))


def _wait_until_empty(client: Client, names: Sequence[str]) -> None:
    try:
        for name in names:
            while not (node := client.node(name))["empty"]:
                time.sleep(POLL_PERIOD_S)
            _say(node)
    except KeyboardInterrupt:
        warn("\nDetached: the nodes are emptied all the same.")
        warn("  motley nodes --watch   see how far it is")
        raise typer.Exit(130) from None
