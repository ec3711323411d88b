"""Feasibility of a request: whether the cluster could ever run it, and if not, which constraint excludes it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

from django.db.models import Count

from allocation.gangs import fewest_nodes, holds_equal_parts, servable_gpus
from cluster_app.models import Gpu, Node
from cluster_app.models.engine import booked_per_gpu
from cluster_app.replica_size import ONE_GPU, GpusPerReplica
from cluster_app.storage import CONTAINERS, NOT_STORAGE, PLACES, SITE, WORDS, StoragePaths, offers

VOLUNTEERS_ONLY = "volunteers_only"


@dataclass(frozen=True)
class NodeShape:
    """Resources of an empty node."""

    gpu_type: str
    gpus: int
    gpu_memory_mib: int
    cpus: int
    memory_mib: int
    engine: str = ""
    storage: frozenset[str] = frozenset()
    """Names of the storage that it has, and what it offers else (`cluster_app.storage.offers`)."""
    booked_cpus_per_gpu: int = 0
    """That its engine books for each GPU of a job at least; 0: it books nothing."""
    booked_memory_per_gpu_mib: int = 0

    @classmethod
    def of(cls, node: Node, gpus: int, paths: StoragePaths) -> Self:
        """That of a node with so many GPUs."""
        cpus, memory_mib = booked_per_gpu(node.engine.kind, node.engine.options)
        return cls(
            gpu_type=node.gpu_type.name,
            gpus=gpus,
            gpu_memory_mib=node.gpu_type.memory_mib,
            cpus=node.cpus,
            memory_mib=node.memory_mib,
            engine=str(node.engine_id),
            storage=frozenset(paths.on(str(node.engine_id), node.gpu_type.name))
            | offers(node.containers, node.engine.kind, trusted=node.engine.trusted),
            booked_cpus_per_gpu=cpus,
            booked_memory_per_gpu_mib=memory_mib,
        )


@dataclass(frozen=True)
class Request:
    """Resources that a gang requests; an empty `gpu_types` means any type.

    `gpus` is what it takes on the type where its replicas take fewest.
    """

    gpus: int
    gpu_types: tuple[str, ...] = ()
    gpu_memory_mib: int = 0
    cpus_per_gpu: int = 0
    memory_per_gpu_mib: int = 0
    uneven_gang: bool = False
    gpus_per_replica: GpusPerReplica = ONE_GPU
    mounts: tuple[str, ...] = ()
    """Names of storage, and what its nodes must have and be else (`cluster_app.storage.needs_of`)."""

    @property
    def replicas(self) -> int:
        """Replicas of the request; GPUs if a replica takes one."""
        return self.gpus // self.gpus_per_replica.least

    def on(self, gpu_type: str) -> "Request":
        """The same request on one GPU type."""
        return replace(self, gpus=self.replicas * self.gpus_per_replica.on(gpu_type), gpus_per_replica=ONE_GPU)


@dataclass(frozen=True)
class Refusal:
    """The constraint that no node satisfies; `pointer` is the field of the job's spec."""

    code: str
    pointer: str
    detail: str


def inventory() -> list[NodeShape]:
    """All nodes but retired ones: a node that is out of service may be back before the job's turn."""
    gpus = dict(Gpu.objects.present().order_by().values_list("node").annotate(Count("pk")))
    paths = StoragePaths.read()
    return [
        NodeShape.of(node, gpus[node.pk], paths)
        for node in Node.objects.current().select_related("gpu_type", "engine")
        if node.pk in gpus
    ]


def why_never(request: Request, nodes: Sequence[NodeShape]) -> Refusal | None:
    """Why the cluster can never run the request, with the largest feasible value; None if it can."""
    if not nodes:
        return Refusal(
            "no_such_gpu", "/gpus", "The cluster has no GPUs yet: an administrator can add nodes in the administration."
        )
    everywhere = frozenset.intersection(*{node.storage for node in nodes}) & PLACES
    request = replace(request, mounts=tuple(name for name in request.mounts if name not in everywhere))
    checks = (_wrong_type, _volunteers_only, _no_containers, _no_storage, _too_little, _too_large)
    return next((refusal for check in checks if (refusal := check(request, nodes))), None)


def _wrong_type(request: Request, nodes: Sequence[NodeShape]) -> Refusal | None:
    known = sorted({node.gpu_type for node in nodes})
    unknown = [name for name in request.gpu_types if name not in known]
    if not unknown:
        return None
    pointer = "/gpus_per_replica" if request.gpus_per_replica.by_type else "/gpu_types"
    return Refusal("no_such_gpu", pointer, f"No node has {_spelled(unknown)}; there is {_spelled(known)}.")


def _spelled(gpu_types: Iterable[str]) -> str:
    """GPU types as they are written in sentences."""
    return ", ".join(name.upper() for name in gpu_types)


def _volunteers_only(request: Request, nodes: Sequence[NodeShape]) -> Refusal | None:
    """Refusal: the allowed GPUs are on machines that joined, where the job may not run."""
    places = PLACES.intersection(request.mounts)
    if any(places <= node.storage for node in _of_type(request, nodes)):
        return None
    which = "machines that joined" if SITE in places else "machines that joined and are not trusted"
    text = f"Only {which} have the allowed GPU types, and the job may not run there: see `volunteers`, and that of its"
    return Refusal(VOLUNTEERS_ONLY, "/volunteers", f"{text} team; secrets and a workdir keep a job away, too.")


def _no_containers(request: Request, nodes: Sequence[NodeShape]) -> Refusal | None:
    if CONTAINERS not in request.mounts or any(CONTAINERS in node.storage for node in _of_type(request, nodes)):
        return None
    where = sorted({f"{node.gpu_type.upper()} of {node.engine}" for node in nodes if CONTAINERS in node.storage})
    there = f"these do: {', '.join(where)}" if where else "an administrator can install Podman (docs/containers.md)"
    return Refusal("no_containers", "/image", f"No node of the allowed GPU types runs containers; {there}.")


def _no_storage(request: Request, nodes: Sequence[NodeShape]) -> Refusal | None:
    """Refusal for storage that no node has, or that no allowed node has together."""
    if not request.mounts or any(_has_storage(request, node) for node in _of_type(request, nodes)):
        return None
    known = sorted(frozenset[str]().union(*(node.storage for node in nodes)) - NOT_STORAGE)
    unknown = [name for name in request.mounts if name not in {*known, *NOT_STORAGE}]
    if unknown:
        there = f"there is {', '.join(known)}" if known else "an administrator can add it in the administration"
        return Refusal("no_such_storage", "/mounts", f"No node has the storage {', '.join(unknown)}; {there}.")
    asked = " and ".join(WORDS.get(name, name) for name in request.mounts)
    where = sorted({f"{node.gpu_type.upper()} of {node.engine}" for node in nodes if _has_storage(request, node)})
    if not where:
        return Refusal("no_such_storage", "/mounts", f"No node has the storage {asked} together.")
    text = f"No node of the allowed GPU types has the storage {asked}; these have it: {', '.join(where)}."
    return Refusal("no_such_storage", "/mounts", text)


def _has_storage(request: Request, node: NodeShape) -> bool:
    return node.storage.issuperset(request.mounts)


def _too_little(request: Request, nodes: Iterable[NodeShape]) -> Refusal | None:
    allowed = [node for node in _of_type(request, nodes) if _has_storage(request, node)]
    memory = max(node.gpu_memory_mib for node in allowed)
    if memory < request.gpu_memory_mib:
        asked = request.gpu_memory_mib
        text = f"No allowed GPU has {asked} MiB of memory; the largest has {memory} MiB."
        return Refusal("gpu_memory_too_small", "/gpu_memory", text)
    allowed = [node for node in allowed if node.gpu_memory_mib >= request.gpu_memory_mib]
    cpus = max(node.cpus for node in allowed)
    if cpus < request.cpus_per_gpu:
        text = f"No allowed node has {request.cpus_per_gpu} CPUs for a GPU; the largest has {cpus}."
        return Refusal("insufficient_cpus", "/cpus_per_gpu", text)
    memory = max(node.memory_mib for node in allowed)
    if memory < request.memory_per_gpu_mib:
        text = f"No allowed node has {request.memory_per_gpu_mib} MiB for a GPU; the largest has {memory} MiB."
        return Refusal("insufficient_memory", "/memory_per_gpu", text)
    return None


def _too_large(request: Request, nodes: Iterable[NodeShape]) -> Refusal | None:
    of_type = {kind: [node for node in nodes if node.gpu_type == kind] for kind in _types(request, nodes)}
    if any(fits(request.on(kind), there) for kind, there in of_type.items()):
        return None
    if request.gpus_per_replica.several:
        return _too_many_replicas(request, of_type)
    largest = {kind: largest_gang(request, there) for kind, there in of_type.items()}
    best = ", ".join(f"{gpus} {kind.upper()}" for kind, gpus in sorted(largest.items(), key=lambda item: -item[1]))
    allowed = [node for its in of_type.values() for node in its]
    asked = f"{request.gpus} GPUs of one job{_conditions(request, allowed)}"
    text = f"No GPU type has room for {asked}; the most possible: {best}."
    if max(largest.values()) > request.gpus:
        text += " A job has equally many on each of its nodes, unless it sets `uneven_gang`."
    text += " All GPUs of a job are at one engine." * (len({node.engine for node in nodes}) > 1)
    return Refusal("gang_too_large", "/gpus", text)


def _conditions(request: Request, allowed: Sequence[NodeShape]) -> str:
    """What limits the nodes besides their GPUs, as a sentence goes on: ` with the requested CPUs and memory`."""
    books = " beside the CPUs and memory that Slurm books for each GPU"
    return _requested(request) + books * _booking_limits(request, allowed)


def _booking_limits(request: Request, allowed: Sequence[NodeShape]) -> bool:
    """Whether the request would fit on a GPU type if engines booked nothing beyond it."""
    unbooked = [replace(node, booked_cpus_per_gpu=0, booked_memory_per_gpu_mib=0) for node in allowed]
    kinds = {node.gpu_type for node in allowed}
    return any(fits(request.on(kind), [node for node in unbooked if node.gpu_type == kind]) for kind in kinds)


def _requested(request: Request) -> str:
    limits = {"CPUs": request.cpus_per_gpu, "memory": request.memory_per_gpu_mib, "GPU memory": request.gpu_memory_mib}
    given = [name for name, limit in {**limits, "storage": request.mounts}.items() if limit]
    *others, last = given or [""]
    return f" with the requested {' and '.join([', '.join(others), last] if others else [last])}" if given else ""


def _too_many_replicas(request: Request, of_type: Mapping[str, Sequence[NodeShape]]) -> Refusal:
    """The largest feasible number of replicas by type; it may be 0 on each."""
    conditions = _conditions(request, [node for its in of_type.values() for node in its])
    asked, most = request.gpus_per_replica, {k: _most_replicas(request, there, k) for k, there in of_type.items()}
    best = ", ".join(asked.words(replicas, kind) for kind, replicas in sorted(most.items(), key=lambda x: -x[1]))
    text = f"No GPU type has room for {request.replicas} replicas{conditions}; the most possible: {best}."
    pointer = "/replicas" if any(most.values()) else "/gpus_per_replica"
    return Refusal("gang_too_large", pointer, text)


def _most_replicas(request: Request, nodes: Sequence[NodeShape], gpu_type: str) -> int:
    """Largest feasible number of replicas on nodes of one GPU type, up to those requested."""
    unit = request.gpus_per_replica.on(gpu_type)
    wanted = range(min(request.replicas, sum(node.gpus for node in nodes) // unit), 0, -1)
    return next((n for n in wanted if fits(replace(request.on(gpu_type), gpus=n * unit), nodes)), 0)


def largest_gang(request: Request, nodes: Sequence[NodeShape]) -> int:
    """Largest feasible gang on nodes of one GPU type."""
    return max((_largest_gang(request, its) for its in _by_engine(nodes)), default=0)


def _largest_gang(request: Request, nodes: Sequence[NodeShape]) -> int:
    slots = _slots(request, nodes)
    return next((gpus for gpus in range(sum(slots), 0, -1) if _fits(replace(request, gpus=gpus), nodes, slots)), 0)


def fits(request: Request, nodes: Sequence[NodeShape]) -> bool:
    """Whether the empty nodes of one engine hold the gang: in equal parts on the fewest, or if uneven in any parts."""
    return any(_fits(request, its, _slots(request, its)) for its in _by_engine(nodes))


def _by_engine(nodes: Sequence[NodeShape]) -> list[list[NodeShape]]:
    """The nodes of each engine: a gang runs at one."""
    return [[node for node in nodes if node.engine == name] for name in sorted({node.engine for node in nodes})]


def _fits(request: Request, nodes: Sequence[NodeShape], slots: Sequence[int]) -> bool:
    if request.uneven_gang:
        return sum(slots) >= request.gpus
    count = fewest_nodes([node.gpus for node in nodes], request.gpus)
    return count is not None and holds_equal_parts(slots, request.gpus, count)


def _slots(request: Request, nodes: Sequence[NodeShape]) -> list[int]:
    """GPUs of the request that each node can serve when it is empty."""
    servable: list[int] = servable_gpus(
        [node.gpus if _can_serve(request, node) else 0 for node in nodes],
        [node.cpus for node in nodes],
        [node.memory_mib for node in nodes],
        cpus_per_gpu=[max(request.cpus_per_gpu, node.booked_cpus_per_gpu) for node in nodes],
        memory_per_gpu_mib=[max(request.memory_per_gpu_mib, node.booked_memory_per_gpu_mib) for node in nodes],
    ).tolist()
    return servable


def _can_serve(request: Request, node: NodeShape) -> bool:
    return node.gpu_memory_mib >= request.gpu_memory_mib and _has_storage(request, node)


def _of_type(request: Request, nodes: Iterable[NodeShape]) -> list[NodeShape]:
    return [node for node in nodes if not request.gpu_types or node.gpu_type in request.gpu_types]


def _types(request: Request, nodes: Iterable[NodeShape]) -> list[str]:
    return sorted({node.gpu_type for node in _of_type(request, nodes)})
