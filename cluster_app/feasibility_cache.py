"""Feasibility from a cached inventory, so that 300 submissions a second do not read the nodes each time."""

from dataclasses import dataclass, field
from time import monotonic

from cluster_app.feasibility import NodeShape, Request, inventory, why_never

GOOD_FOR_S = 1.0


@dataclass(frozen=True)
class CachedInventory:
    """Nodes as read at one moment, and the requests found feasible on them."""

    at: float
    nodes: list[NodeShape]
    held: set[Request] = field(default_factory=set)
    """Memo of feasible requests; it only grows."""

    def holds(self, request: Request) -> bool:
        if request not in self.held and why_never(request, self.nodes) is None:
            self.held.add(request)
        return request in self.held


class Acceptance:
    """Reads the inventory at most once a second. The cached inventory may accept a request and never refuses one.

    If a node has been removed since, the job waits as if it had been submitted a moment earlier.
    """

    def __init__(self) -> None:
        self._last: CachedInventory | None = None

    def holds(self, request: Request) -> bool:
        """Whether the cluster, as cached, could ever run the request."""
        cached = self._last
        if cached is None or monotonic() - cached.at > GOOD_FOR_S:
            cached = self._last = CachedInventory(monotonic(), inventory())
        return cached.holds(request)

    def forget(self) -> None:
        self._last = None


ACCEPTANCE = Acceptance()
