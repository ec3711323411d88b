"""Commands about the cluster: nodes, GPU types, measured rates."""

import time
from collections.abc import Callable, Sequence
from typing import Annotated

import typer

from motley_client.client import Client
from motley_client.errors import NotFound
from motley_client.responses import Node
from motley_command.completion import TeamOption, gpu_types
from motley_command.completion import nodes as known_nodes
from motley_command.lookup import connect
from motley_command.tables.cluster import gpu_types_table, nodes_table, occupancy, storage_table, throughputs_table
from motley_command.terminal import Output, OutputOption, WatchOption, emit, now, present, sanitized, say, warn

POLL_PERIOD_S = 2.0

gpu_type_group = typer.Typer(no_args_is_help=True, help="Retire and restore GPU types; motley types lists them.")

TypeArgument = Annotated[str, typer.Argument(metavar="TYPE", help="GPU type.", autocompletion=gpu_types)]
NodeArguments = Annotated[
    list[str], typer.Argument(metavar="NODE...", help="Names of nodes.", autocompletion=known_nodes)
]
ReasonOption = Annotated[str, typer.Option("--reason", "-r", help="Reason, shown to the owners of affected jobs.")]
GpuTypeOption = Annotated[
    str | None, typer.Option(metavar="TYPE", help="Only this GPU type.", autocompletion=gpu_types)
]


def nodes(
    context: typer.Context,
    names: Annotated[list[str] | None, typer.Argument(metavar="[NODE]...", help="Only these nodes.")] = None,
    *,
    state: Annotated[
        str | None,
        typer.Option(help="Only nodes that are ready, cordoned, draining, drained, sleeping, waking or retired."),
    ] = None,
    gpu_type: GpuTypeOption = None,
    watch: WatchOption = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """List nodes and their free GPUs."""
    with connect(context) as client:
        present(
            lambda: _chosen(list(client.nodes(state=state, gpu_type=gpu_type)), names or []),
            output=output,
            watch=watch,
            names=lambda nodes: [node["name"] for node in nodes],
            table=lambda nodes: nodes_table(nodes, now=now()),
        )


def _chosen(nodes: list[Node], names: Sequence[str]) -> list[Node]:
    """The nodes with these names; without names all."""
    by_name = {node["name"]: node for node in nodes}
    if unknown := [name for name in names if name not in by_name]:
        raise NotFound(f"There is no node {', '.join(unknown)} among those that are listed here.")
    return [by_name[name] for name in names] if names else nodes


def cordon(context: typer.Context, nodes: NodeArguments, *, reason: ReasonOption) -> None:
    """Start no new jobs on nodes; running jobs continue. Administrators only."""
    with connect(context) as client:
        _apply_to_each(nodes, lambda name: client.cordon(name, reason=reason))


def drain(
    context: typer.Context,
    nodes: NodeArguments,
    *,
    reason: ReasonOption,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the nodes are empty; Ctrl-C stops waiting.")] = False,
) -> None:
    """Start no new jobs on nodes and move running jobs to other nodes. Administrators only."""
    with connect(context) as client:
        _apply_to_each(nodes, lambda name: client.drain(name, reason=reason))
        if wait:
            _wait_until_empty(client, nodes)


def resume(
    context: typer.Context,
    nodes: NodeArguments,
    *,
    reason: Annotated[str, typer.Option("--reason", "-r", help="Reason, recorded in the history.")] = "",
) -> None:
    """Return nodes to service. Administrators only."""
    with connect(context) as client:
        _apply_to_each(nodes, lambda name: client.resume(name, reason=reason))


def retire(context: typer.Context, nodes: NodeArguments, *, reason: ReasonOption) -> None:
    """Take nodes without jobs out of use for good; they stay in the history. Administrators only."""
    with connect(context) as client:
        _apply_to_each(nodes, lambda name: client.retire_node(name, reason=reason))


def restore(context: typer.Context, nodes: NodeArguments) -> None:
    """Return retired nodes to service, with the GPUs that they had. Administrators only."""
    with connect(context) as client:
        _apply_to_each(nodes, client.restore_node)


@gpu_type_group.command("retire")
def retire_type(context: typer.Context, name: TypeArgument) -> None:
    """Retire a GPU type of which all nodes are retired: it is no longer offered. Administrators only."""
    with connect(context) as client:
        client.retire_gpu_type(name)
    say(sanitized(f"The GPU type {name} is retired."))


@gpu_type_group.command("restore")
def restore_type(context: typer.Context, name: TypeArgument) -> None:
    """Offer a retired GPU type again; its nodes are restored one by one. Administrators only."""
    with connect(context) as client:
        client.restore_gpu_type(name)
    say(sanitized(f"The GPU type {name} is offered again."))


def types(context: typer.Context, output: OutputOption = Output.TABLE) -> None:
    """List GPU types: memory, speed, price, and how many are free."""
    with connect(context) as client:
        found = list(client.gpu_types())
    emit(output, found, names=[kind["name"] for kind in found], table=lambda: gpu_types_table(found))


def storage(context: typer.Context, output: OutputOption = Output.TABLE) -> None:
    """List named storage, which jobs ask for with --mount, and the engines that have it."""
    with connect(context) as client:
        found = list(client.storage())
    emit(output, found, names=dict.fromkeys(one["name"] for one in found), table=lambda: storage_table(found))


def rates(
    context: typer.Context,
    *,
    team: TeamOption = None,
    workload: Annotated[str | None, typer.Option(help="Only this workload.")] = None,
    gpu_type: GpuTypeOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """List the measured rate of each workload on each GPU type."""
    with connect(context) as client:
        found = list(client.throughputs(team=team, workload=workload, gpu_type=gpu_type))
    names = [one["workload"] for one in found]
    emit(output, found, names=dict.fromkeys(names), table=lambda: throughputs_table(found, now=now()))


def _apply_to_each(names: Sequence[str], action: Callable[[str], Node]) -> None:
    for name in names:
        _say(action(name))


def _say(node: Node) -> None:
    still = "" if node["state"] == "ready" else f", {occupancy(node, now())}"
    say(sanitized(f"{node['name']}: {node['state']}{still}"))


def _wait_until_empty(client: Client, names: Sequence[str]) -> None:
    try:
        for name in names:
            while not (node := client.node(name))["empty"]:
                time.sleep(POLL_PERIOD_S)
            _say(node)
    except KeyboardInterrupt:
        warn("\nDetached: draining continues.")
        warn("  motley nodes --watch   watch the progress")
        raise typer.Exit(130) from None
