"""Errors about the inventory."""

from datetime import datetime


class ClusterError(Exception):
    """Base of all errors about nodes and GPUs."""

    code = "cluster"


class ReasonMissing(ClusterError):
    """A node was to be taken out of service without a reason."""

    code = "reason_missing"

    def __init__(self) -> None:
        super().__init__("Give a reason: it is shown to the owners of the affected jobs.")


class NotLentNow(ClusterError):
    """A node was to be returned to service while its owner has it back."""

    code = "node_not_lent_now"

    def __init__(self, node: str, window: str) -> None:
        super().__init__(f"{node} is lent {window}, and returns by itself: change these times to use it now.")


class InMaintenance(ClusterError):
    """A node was to be returned to service during a maintenance window."""

    code = "node_in_maintenance"

    def __init__(self, node: str, until: datetime) -> None:
        super().__init__(
            f"{node} is in maintenance until {until:%F %H:%M} UTC, and returns by itself: end that window."
        )


class NotReported(ClusterError):
    """A node was to be added that its engine does not have so; `field` is the column at fault."""

    code = "node_not_reported"

    def __init__(self, field: str, detail: str) -> None:
        self.field = field
        super().__init__(detail)


class NodeRetired(ClusterError):
    """A retired node was to be used, or to be changed."""

    code = "node_retired"

    def __init__(self, node: str) -> None:
        super().__init__(f"{node} is retired: restore it first, by motley restore {node} or in the administration.")


class GpuTypeRetired(ClusterError):
    """A node of a retired GPU type was to be added or restored."""

    code = "gpu_type_retired"

    def __init__(self, gpu_type: str) -> None:
        super().__init__(
            f"The GPU type {gpu_type} is retired: restore it first, by motley gpu-type restore {gpu_type} or in the "
            "administration."
        )


class StillInUse(ClusterError):
    """Something was to be retired that is in use; the text says by what, and what to do."""

    code = "still_in_use"


class GpusInUse(ClusterError):
    """GPUs were to be removed from a node while jobs hold them."""

    code = "gpus_in_use"

    def __init__(self, node: str, used: int) -> None:
        super().__init__(
            f"{used} of the GPUs to be removed are in use: drain {node} first, and wait until it is empty."
        )
