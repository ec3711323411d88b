"""Capacity that Motley may use: Slurm's nodes minus other users' jobs and reservations. Pure."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from engines.protocol import NodeState
from engines.slurm.files import SlurmLaunchFile
from engines.slurm.options import SlurmOptions
from engines.slurm.parsing import Allocation, Partition, Reservation, SlurmNode
from engines.slurm.submission import cpus_with

MAINTENANCE = "MAINT"
"""Flag of a reservation that keeps out even the jobs of others that the node has."""


class Use(NamedTuple):
    """Use of a node by some jobs."""

    gpus: int = 0
    cpus: int = 0
    memory_mib: int = 0

    def plus(self, other: "Use") -> "Use":
        return Use(*(mine + its for mine, its in zip(self, other, strict=True)))


def own_use(allocations: Iterable[Allocation], launch_of: Callable[[str], SlurmLaunchFile | None]) -> Mapping[str, Use]:
    """Use by our own Slurm jobs, by node; `launch_of` gives the ranks of a job by its name."""
    found: dict[str, Use] = defaultdict(Use)
    for one in allocations:
        if (site := launch_of(one.name)) is None:
            continue
        for node, gpus, component in zip(site["nodes"], site["gpus"], site["components"], strict=True):
            if component == one.component:
                found[node] = found[node].plus(Use(gpus, one.cpus, one.memory_mib))
    return found


def foreign_use(node: SlurmNode, own: Use, options: SlurmOptions) -> Use:
    """Use of the node by others, and GPUs without an owner for which these leave no CPUs or no memory."""
    cpus = max(node.used_cpus - own.cpus, 0)
    memory_mib = max(node.used_memory_mib - own.memory_mib, 0)
    seats = (node.cpus - cpus) // cpus_with(1, options)
    if options.memory_mib_per_gpu:
        seats = min(seats, (node.memory_mib - memory_mib) // options.memory_mib_per_gpu)
    return Use(max(node.used_gpus - own.gpus, node.gpu_count - max(seats, 0), 0), cpus, memory_mib)


def with_partition(nodes: Iterable[SlurmNode], partitions: Iterable[Partition], *, own: str) -> list[SlurmNode]:
    """The nodes, cordoned where the partition of our jobs, `own` or the default, starts none.

    Else a job would be placed there again and again, and be taken back after each round.
    """
    ours = next((one for one in partitions if (one.name == own if own else one.is_default)), None)
    if ours is None or ours.state == "UP":
        return list(nodes)
    why = f"Slurm says that the partition {ours.name} is {ours.state.lower()}"
    return [_cordoned(node, why) for node in nodes]


def with_reservations(nodes: Iterable[SlurmNode], reservations: Iterable[Reservation], *, own: str) -> list[SlurmNode]:
    """The nodes, cordoned where a reservation other than `own` is active; with `own`, also those outside of it."""
    active = [one for one in reservations if one.is_active]
    return [_cordoned(node, why) if (why := _why_reserved(node, active, own)) else node for node in nodes]


def _why_reserved(node: SlurmNode, active: Iterable[Reservation], own: str) -> str:
    here = {one.name: one for one in active if node.name in one.nodes}
    others = [one for name, one in sorted(here.items()) if name != own]
    closing = [one for one in others if own not in here or MAINTENANCE in one.flags]
    if closing:
        return f"it is reserved in Slurm until {closing[0].until} ({closing[0].name})"
    return f"it is not in the reservation {own}, or that is not active" if own and own not in here else ""


def _cordoned(node: SlurmNode, why: str) -> SlurmNode:
    return replace(node, state=NodeState.CORDONED, reason=why) if node.state is NodeState.OK else node
