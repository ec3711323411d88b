"""The cluster of a lab run: the nodes that are there, with some added or taken."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from django.db.models import Count

from cluster_app.models import Gpu

NodeGpus = Mapping[str, Sequence[int]]
"""GPU type → GPUs of each of its nodes."""


class NoSuchNodes(ValueError):
    """There are no such nodes to take, or none to add more of; `gpu_type` is the one in question."""

    def __init__(self, gpu_type: str, reason: str) -> None:
        self.gpu_type = gpu_type
        super().__init__(reason)


def read_node_gpus() -> NodeGpus:
    """Present GPUs of each node, whether it is in service or not."""
    nodes: dict[str, list[int]] = defaultdict(list)
    present = Gpu.objects.present().order_by("node__gpu_type__name").values_list("node__gpu_type__name", "node")
    for gpu_type, _, gpus in present.annotate(gpus=Count("pk")):
        nodes[gpu_type].append(gpus)
    return nodes


def with_changes(there: NodeGpus, changes: Mapping[str, int]) -> NodeGpus:
    """With nodes of the usual size added, or taken; raises NoSuchNodes."""
    changed = {gpu_type: _changed(gpu_type, nodes, changes.get(gpu_type, 0)) for gpu_type, nodes in there.items()}
    for gpu_type in changes.keys() - there.keys():
        known = ", ".join(there) or "none"
        raise NoSuchNodes(gpu_type, f"The cluster has no nodes of the GPU type {gpu_type!r:.60}; it has: {known}.")
    if changes and not any(changed.values()):
        raise NoSuchNodes(next(iter(changes)), "No node would be left: take fewer.")
    return {gpu_type: nodes for gpu_type, nodes in changed.items() if nodes}


def _changed(gpu_type: str, nodes: Sequence[int], change: int) -> Sequence[int]:
    if change < -len(nodes):
        raise NoSuchNodes(gpu_type, f"There are {len(nodes)} nodes of {gpu_type}: no more can be taken.")
    ((usual, _),) = Counter(nodes).most_common(1)
    of_usual_size_first = sorted(nodes, key=lambda gpus: gpus != usual)
    return [*nodes, *[usual] * change] if change > 0 else of_usual_size_first[-change:]


def cluster_words(nodes: NodeGpus) -> str:
    """As the simulator reads it: a100=2x8,v100=4x4."""
    sizes = ((gpu_type, *pair) for gpu_type, of_type in nodes.items() for pair in sorted(Counter(of_type).items()))
    return ",".join(f"{gpu_type}={count}x{gpus}" for gpu_type, gpus, count in sizes)
