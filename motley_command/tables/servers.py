"""Tables of the site's own servers."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime

from rich.console import Group, RenderableType

from motley_client.responses import Node, Server
from motley_command.tables.cluster import occupancy
from motley_command.tables.format import age, table

MISSING = "-"
OF_SERVERS = "servers"
"""Engine of all servers."""


def servers_table(servers: Iterable[Server], nodes: Mapping[str, Node], *, now: datetime) -> RenderableType:
    """The servers, without those that were revoked and whose nodes are retired, which are kept for the record."""
    headings = ("SERVER", "AGENT", "HEARD", "RELEASE", "NODE", "GPUS", "JOBS", "TO BE MENDED")
    rows = [
        (
            one["name"],
            one["state"],
            age(one["heard_at"], now) if one["heard_at"] else MISSING,
            _release(one),
            nodes[one["name"]]["state"] if one["name"] in nodes else MISSING,
            str(nodes[one["name"]]["gpus"]) if one["name"] in nodes else MISSING,
            str(nodes[one["name"]]["jobs_running"]) if one["name"] in nodes else MISSING,
            ", ".join(check["name"] for check in one["findings"] if not check["passed"]),
        )
        for one in servers
        if one["state"] != "revoked" or one["name"] in nodes
    ]
    hidden = any(node["engine"] == OF_SERVERS for node in nodes.values())
    none = "Administrators see the servers, with a token of scope admin; motley nodes lists their nodes."
    return table(headings, rows, empty=none if hidden else "No servers: motley server add root@HOST ...")


def server_table(server: Server, node: Node | None, *, now: datetime) -> RenderableType:
    """Facts about one server, and its checks."""
    facts = table(("SERVER", server["name"]), [*_facts(server, node, now)], empty="")
    checks = [(one["name"], "ok" if one["passed"] else "FAIL", one["said"]) for one in server["findings"]]
    empty = "Its agent has not said what it found on its server."
    return Group(facts, "", table(("CHECK", "", "FOUND"), checks, empty=empty))


def _facts(server: Server, node: Node | None, now: datetime) -> Iterator[tuple[str, str]]:
    yield "agent", server["state"]
    yield "heard", age(server["heard_at"], now) if server["heard_at"] else "never"
    yield "release", _release(server)
    yield "Python", server["python"] or MISSING
    if server["update_fault"]:
        yield "update", server["update_fault"]
    if node is not None:
        yield "node", f"{node['state']}, {node['health']}{', ' if node['reason'] else ''}{node['reason']}"
        yield "GPUs", f"{node['free_gpus']} of {node['gpus']} {node['gpu_type']} are free"
        yield "jobs", occupancy(node, now) if node["state"] != "ready" else str(node["jobs_running"])


def _release(server: Server) -> str:
    return f"{server['release'] or MISSING}{' (old)' if server['up_to_date'] is False else ''}"
