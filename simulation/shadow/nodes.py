"""The cluster of a study: nodes as `scontrol show node` or `sinfo` lists them, or as jobs used them."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from simulation.cluster import Cluster
from simulation.shadow.accounting import ALL, PART_OF_GPU, InvalidAccounting, SlurmJob, nodes_named

NODES_COMMAND = "scontrol show node > nodes.txt"


class GpuNode(NamedTuple):
    """A node with its GPUs of one type."""

    name: str
    gpu_type: str
    gpus: int


class _Listed(NamedTuple):
    name: str
    gres: str
    partitions: str = ""


def read_nodes(text: str, type_of: Mapping[str, str]) -> list[GpuNode]:
    """Nodes with GPUs of `scontrol show node`, or of `sinfo -N -h -o "%N %G"`; `type_of`: types of partitions."""
    found = _of_scontrol(text) if "NodeName=" in text else _of_sinfo(text)
    nodes = {listed.name: _node(listed, type_of) for listed in found}
    with_gpus = [node for node in nodes.values() if node is not None]
    if not with_gpus:
        raise InvalidAccounting(f"There is no node with GPUs in the list of nodes. Write it by: {NODES_COMMAND}")
    return with_gpus


def _of_scontrol(text: str) -> Iterator[_Listed]:
    for record in re.split(r"(?=^NodeName=)", text, flags=re.MULTILINE):
        name, gres, partitions = (
            re.search(rf"\b{field}=(\S+)", record) for field in ("NodeName", "Gres", "Partitions")
        )
        if name and gres:
            yield _Listed(name[1], gres[1], partitions[1] if partitions else "")


def _of_sinfo(text: str) -> Iterator[_Listed]:
    for line in text.splitlines():
        names, _, gres = line.strip().partition(" ")
        if gres:
            yield from (_Listed(name, gres.strip()) for name in nodes_named(names))


def _node(listed: _Listed, type_of: Mapping[str, str]) -> GpuNode | None:
    if PART_OF_GPU.search(listed.gres):
        raise InvalidAccounting(f"The node {listed.name} has parts of GPUs ({listed.gres}): leave it out of the list.")
    parts = re.findall(r"(?:^|,)gpu:(?:([A-Za-z][\w.-]*):)??(?:no_consume:)?(\d+)", listed.gres)
    types = {kind.lower() for kind, _ in parts if kind}
    if len(types) > 1:
        raise InvalidAccounting(f"The node {listed.name} has GPUs of several types ({listed.gres}): leave it out.")
    told = [type_of[name] for name in (*listed.partitions.split(","), ALL) if name in type_of]
    gpus = sum(int(count) for _, count in parts)
    return GpuNode(listed.name, next(iter([*types, *told]), "gpu"), gpus) if gpus else None


def nodes_of_jobs(jobs: Sequence[SlurmJob]) -> list[GpuNode]:
    """The nodes that jobs ran on, each with the most GPUs that jobs had there at once: what is not used is not seen."""
    changes: dict[str, list[tuple[float, int]]] = defaultdict(list)
    types: dict[str, str] = {}
    for job in jobs:
        for node in job.nodes:
            here = -(-job.gpus // len(job.nodes))
            changes[node] += [(job.started_s, here), (job.ended_s, -here)]
            types[node] = job.gpu_type
    if not changes:
        raise InvalidAccounting(f"No job says on which nodes it ran. Give the nodes by --nodes FILE: {NODES_COMMAND}")
    return [GpuNode(name, types[name], _most_at_once(of_node)) for name, of_node in sorted(changes.items())]


def _most_at_once(changes: Iterable[tuple[float, int]]) -> int:
    held = most = 0
    for _, change in sorted(changes):
        held += change
        most = max(most, held)
    return most


def types_of_nodes(nodes: Iterable[GpuNode]) -> Mapping[str, str]:
    return {node.name: node.gpu_type for node in nodes}


def cluster_of(nodes: Iterable[GpuNode]) -> Cluster:
    """The nodes as the simulator has them."""
    by_type: dict[str, list[int]] = defaultdict(list)
    for node in nodes:
        by_type[node.gpu_type].append(node.gpus)
    return Cluster(tuple(by_type), tuple(tuple(sorted(gpus, reverse=True)) for gpus in by_type.values()))


def cluster_spec(cluster: Cluster) -> str:
    """As the option --cluster has it: `a100=4x8,v100=2x4`."""
    parts = []
    for kind, nodes in zip(cluster.gpu_types, cluster.node_gpus, strict=True):
        parts += [f"{kind}={nodes.count(size)}x{size}" for size in sorted(set(nodes), reverse=True)]
    return ",".join(parts)
