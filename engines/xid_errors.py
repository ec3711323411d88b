"""Critical XID errors of this machine's GPUs, by the events of NVML."""

from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from time import monotonic
from typing import Any, NamedTuple

try:
    import pynvml
except ImportError:
    pynvml = None

CAUSED_BY_JOBS = frozenset((13, 31, 43, 45, 68, 109))
"""XIDs of a job's own faults, as a kernel that reads beyond its memory: those that NVIDIA's device plugin for
Kubernetes ignores, too."""
TOLD_FOR_S = 60.0
"""An error is told for so long: a report of it that could not be stored is repeated meanwhile."""
MOST_EVENTS = 100
"""Of one look: a GPU in a loop of errors keeps nobody waiting."""


class XidError(NamedTuple):
    """A critical error, and when it was received: wall-clock time and monotonic time."""

    xid: int
    at: datetime
    at_s: float


class XidWatch:
    """Collects critical XID errors; NVML reports each once, and only those since a GPU was registered."""

    def __init__(self, now_s: Callable[[], float] = monotonic) -> None:
        self._now_s = now_s
        self._events: Any = None
        self._registered: set[str] = set()
        self._last: dict[str, XidError] = {}

    def last(self, uuid: str, handle: Any) -> XidError | None:
        """The last critical XID of this GPU within a minute."""
        with suppress(pynvml.NVMLError):  # no driver of vGPUs or of WSL has events
            self._register(uuid, handle)
            self._collect()
        last = self._last.get(uuid)
        return last if last is not None and self._now_s() - last.at_s < TOLD_FOR_S else None

    def _register(self, uuid: str, handle: Any) -> None:
        if self._events is None:
            self._events = pynvml.nvmlEventSetCreate()
        if uuid not in self._registered:
            self._registered.add(uuid)  # one that cannot be registered is not tried twice a second
            pynvml.nvmlDeviceRegisterEvents(handle, pynvml.nvmlEventTypeXidCriticalError, self._events)

    def _collect(self) -> None:
        """Take the waiting events; NVML raises a timeout when there is none."""
        for _ in range(MOST_EVENTS):
            event = pynvml.nvmlEventSetWait_v2(self._events, 0)
            if event.eventData not in CAUSED_BY_JOBS:
                uuid = pynvml.nvmlDeviceGetUUID(event.device)
                name = uuid.decode() if isinstance(uuid, bytes) else uuid
                self._last[name] = XidError(int(event.eventData), datetime.now(UTC), self._now_s())
