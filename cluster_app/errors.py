"""What can go wrong with the inventory."""


class ClusterError(Exception):
    """Base of all errors about nodes and GPUs."""

    code = "cluster"


class ReasonMissing(ClusterError):
    """A node is taken out of service without saying why."""

    code = "reason_missing"

    def __init__(self) -> None:
        super().__init__("Say why: the reason is shown to everybody whose job is affected.")
