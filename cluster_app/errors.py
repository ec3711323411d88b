"""What can go wrong with the inventory."""


class ClusterError(Exception):
    """Base of all errors about nodes and GPUs."""

    code = "cluster"


class ReasonMissing(ClusterError):
    """A node is taken out of service without saying why."""

    code = "reason_missing"

    def __init__(self) -> None:
        super().__init__("Say why: the reason is shown to everybody whose job is affected.")


class GpusInUse(ClusterError):
    """GPUs would be taken out of a node while jobs have them."""

    code = "gpus_in_use"

    def __init__(self, node: str, used: int) -> None:
        super().__init__(
            f"{used} of the GPUs that would go are in use: drain {node} first, and wait until it is empty."
        )
