"""Engines, nodes, servers, GPU types, storage, windows, measured rates, announcements."""

from collections.abc import Iterator
from typing import cast

from motley_client.connection import Connection, Spec, url_path
from motley_client.responses import (
    Announcement,
    Energy,
    Engine,
    GpuType,
    NewServer,
    Node,
    NodeGpus,
    Server,
    Storage,
    Throughput,
    Window,
)


class ClusterRoutes(Connection):
    """Engines, nodes, servers, GPU types, storage, windows, measured rates, announcements."""

    def nodes(
        self, *, state: str | None = None, health: str | None = None, gpu_type: str | None = None
    ) -> Iterator[Node]:
        return cast("Iterator[Node]", self._pages("nodes", {"state": state, "health": health, "gpu_type": gpu_type}))

    def node(self, name: str) -> Node:
        return cast("Node", self._json("GET", url_path("nodes", name)))

    def node_gpus(self, name: str) -> NodeGpus:
        """What was read of a node's GPUs: now, and over the last 24 hours."""
        return cast("NodeGpus", self._json("GET", url_path("nodes", name, "gpus")))

    def add_server(self, name: str) -> NewServer:
        """Make a join token for a server of the site: its agent joins with it. Administrators only."""
        return cast("NewServer", self._json("POST", "agents", json={"name": name, "site": True}))

    def servers(self) -> Iterator[Server]:
        """Servers of the site, by name. Administrators see all."""
        found = cast("Iterator[Server]", self._pages("agents", {}))
        return (one for one in found if one["site"])

    def server(self, name: str) -> Server:
        return cast("Server", self._json("GET", url_path("agents", name)))

    def revoke_server(self, name: str) -> None:
        """Revoke the token of a server, and its join token. Administrators only."""
        self._send("DELETE", url_path("agents", name))

    def update_server(self, name: str) -> Server:
        """Have a server try the update again that failed there. Administrators only."""
        return cast("Server", self._json("POST", url_path("agents", name, "update")))

    def cordon(self, name: str, *, reason: str) -> Node:
        """Start no new jobs on the node; running jobs continue. Administrators only."""
        return self._node_command("cordon", name, reason)

    def drain(self, name: str, *, reason: str) -> Node:
        """Start no new jobs on the node and move running jobs to other nodes. Administrators only."""
        return self._node_command("drain", name, reason)

    def resume(self, name: str, *, reason: str = "") -> Node:
        """Return a cordoned or drained node to service. Administrators only."""
        return self._node_command("resume", name, reason)

    def retire_node(self, name: str, *, reason: str) -> Node:
        """Retire a node without jobs: it is out of use for good, and stays in the history. Administrators only."""
        return self._node_command("retire", name, reason)

    def restore_node(self, name: str) -> Node:
        """Return a retired node to service, with the GPUs that it had. Administrators only."""
        return cast("Node", self._json("POST", url_path("nodes", name, "restore")))

    def gpu_types(self) -> Iterator[GpuType]:
        """GPU types with their figures and how many are free."""
        return cast("Iterator[GpuType]", self._pages("gpu-types", {}))

    def gpu_type(self, name: str) -> GpuType:
        return cast("GpuType", self._json("GET", url_path("gpu-types", name)))

    def retire_gpu_type(self, name: str) -> GpuType:
        """Retire a GPU type of which all nodes are retired: it is no longer offered. Administrators only."""
        return cast("GpuType", self._json("POST", url_path("gpu-types", name, "retire")))

    def restore_gpu_type(self, name: str) -> GpuType:
        """Offer a retired GPU type again. Administrators only."""
        return cast("GpuType", self._json("POST", url_path("gpu-types", name, "restore")))

    def storage(self) -> Iterator[Storage]:
        """Named storage, by engine and GPU type."""
        return cast("Iterator[Storage]", self._pages("storage", {}))

    def windows(self) -> Iterator[Window]:
        """Windows of nodes that go on or are to come: maintenance, and reservations of teams."""
        return cast("Iterator[Window]", self._pages("windows", {}))

    def window(self, window_id: int) -> Window:
        return cast("Window", self._json("GET", url_path("windows", window_id)))

    def add_window(self, fields: Spec) -> Window:
        """Add a window: `reason`, `begins_at`, `ends_at`, and `nodes` or `labels`, or `team`, `gpu_type` and `gpus`.

        Administrators only.
        """
        return cast("Window", self._json("POST", "windows", json=dict(fields)))

    def delete_window(self, window_id: int) -> None:
        """Delete a window; nodes that are drained for it return to service. Administrators only."""
        self._send("DELETE", url_path("windows", window_id))

    def throughputs(
        self, *, team: str | None = None, workload: str | None = None, gpu_type: str | None = None
    ) -> Iterator[Throughput]:
        """Measured throughput of each workload on each GPU type."""
        query = {"team": team, "workload": workload, "gpu_type": gpu_type}
        return cast("Iterator[Throughput]", self._pages("throughputs", query))

    def engines(self) -> Iterator[Engine]:
        """Engines by name, and whether each answers; their options for administrators only."""
        return cast("Iterator[Engine]", self._pages("engines", {}))

    def engine(self, name: str) -> Engine:
        return cast("Engine", self._json("GET", url_path("engines", name)))

    def energy(self) -> Energy:
        """Which nodes could sleep, by GPU type."""
        return cast("Energy", self._json("GET", "energy"))

    def announcements(self) -> Iterator[Announcement]:
        """Announcements that are shown now, newest first."""
        return cast("Iterator[Announcement]", self._pages("announcements", {}))

    def _node_command(self, command: str, name: str, reason: str) -> Node:
        return cast("Node", self._json("POST", url_path("nodes", name, command), json={"reason": reason}))
