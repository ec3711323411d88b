"""Whether some node could ever run a request, asked three hundred times a second."""

from dataclasses import dataclass, field
from time import monotonic

from cluster_app.feasibility import NodeShape, Request, inventory, why_never

GOOD_FOR_S = 1.0


@dataclass(frozen=True)
class Look:
    """The nodes as they were at a moment, and what they were found to hold."""

    at: float
    nodes: list[NodeShape]
    held: set[Request] = field(default_factory=set)
    """Only grows."""

    def holds(self, request: Request) -> bool:
        if request not in self.held and why_never(request, self.nodes) is None:
            self.held.add(request)
        return request in self.held


class Acceptance:
    """Looks at the cluster once a second. What was seen then may accept a request, and never refuses one.

    A node that has just been taken away is no loss: the job waits for it as if it had come a moment earlier.
    """

    def __init__(self) -> None:
        self._last: Look | None = None

    def holds(self, request: Request) -> bool:
        """Whether the cluster, as it was a moment ago, could run it."""
        look = self._last
        if look is None or monotonic() - look.at > GOOD_FOR_S:
            look = self._last = Look(monotonic(), inventory())
        return look.holds(request)

    def forget(self) -> None:
        self._last = None


ACCEPTANCE = Acceptance()
