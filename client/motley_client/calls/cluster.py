"""The cluster: nodes, types of GPUs, and measured rates."""

from collections.abc import Iterator
from typing import cast

from motley_client.answers import GpuType, Node, Throughput
from motley_client.calls.connection import Connection, place


class ClusterCalls(Connection):
    def nodes(
        self, *, state: str | None = None, health: str | None = None, gpu_type: str | None = None
    ) -> Iterator[Node]:
        query = {"state": state, "health": health, "gpu_type": gpu_type}
        return cast("Iterator[Node]", self._pages("nodes", query))

    def node(self, name: str) -> Node:
        return cast("Node", self._json("GET", place("nodes", name)))

    def cordon(self, name: str, *, reason: str) -> Node:
        """Start nothing new on the node; what runs there goes on. For staff."""
        return self._verb_on_node("cordon", name, reason)

    def drain(self, name: str, *, reason: str) -> Node:
        """Start nothing new on the node, and move what runs there elsewhere. For staff."""
        return self._verb_on_node("drain", name, reason)

    def resume(self, name: str, *, reason: str = "") -> Node:
        """Use the node again. For staff."""
        return self._verb_on_node("resume", name, reason)

    def gpu_types(self) -> Iterator[GpuType]:
        return cast("Iterator[GpuType]", self._pages("gpu-types", {}))

    def gpu_type(self, name: str) -> GpuType:
        return cast("GpuType", self._json("GET", place("gpu-types", name)))

    def throughputs(
        self, *, team: str | None = None, workload: str | None = None, gpu_type: str | None = None
    ) -> Iterator[Throughput]:
        """How fast each workload was on each type of GPU, as measured."""
        query = {"team": team, "workload": workload, "gpu_type": gpu_type}
        return cast("Iterator[Throughput]", self._pages("throughputs", query))

    def _verb_on_node(self, verb: str, name: str, reason: str) -> Node:
        return cast("Node", self._json("POST", place("nodes", name, verb), json={"reason": reason}))
