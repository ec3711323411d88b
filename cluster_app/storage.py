"""Requirements of jobs on nodes: named storage, containers, owner of the machine; storage that was found missing."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import models

from cluster_app.models import WITH_AGENTS, Engine, MissingStorage, Node, Storage

TRIED_AGAIN_AFTER = timedelta(minutes=5)
"""Time for which jobs stay away from a node that did not have their storage: a mount may come back by itself."""


CONTAINERS = "(containers)"
"""Stands among the storage of a node that runs containers: no storage can have this name."""


SITE, TRUSTED = "(site)", "(trusted)"
"""Stand among the storage of nodes of the site's own engines, and of those and machines that joined and are trusted."""
KEPT = "(kept)"
"""Stands among the storage of nodes of engines without agents: what a job has saved there stays with the engine."""
PLACES = frozenset({SITE, TRUSTED, KEPT})
NOT_STORAGE = frozenset({CONTAINERS}) | PLACES
WORDS = {
    CONTAINERS: "a container runtime",
    SITE: "a place at the site itself",
    TRUSTED: "the trust of the site",
    KEPT: "what the job has saved",
}
"""For texts: a node has these, or has not."""


class Volunteers(models.TextChoices):
    """On which machines that joined a job may run."""

    NONE = "none", "none: on machines of the site only"
    TRUSTED = "trusted", "trusted: on those that an administrator trusts"
    ANY = "any", "any: on all that joined"


def places_of(volunteers: str) -> tuple[str, ...]:
    """Requirements on the owner of a node, for a job that may run on these machines."""
    return {Volunteers.NONE.value: (SITE,), Volunteers.TRUSTED.value: (TRUSTED,)}.get(volunteers, ())


def needs_of(mounts: Collection[str], image: str, places: Iterable[str] = ()) -> tuple[str, ...]:
    """Requirements on a node of a job with this storage, this image and these machines (`places_of`)."""
    return (*mounts, *([CONTAINERS] if image else []), *places)


def offers(containers: str, kind: str, *, trusted: bool) -> frozenset[str]:
    """Offers of a node, other than storage, that fulfil `needs_of`: by its container runtime and kind of engine."""
    own = kind != Engine.Kind.AGENT
    has = {CONTAINERS: bool(containers), SITE: own, TRUSTED: own or trusted, KEPT: kind not in WITH_AGENTS}
    return frozenset(name for name, holds in has.items() if holds)


OF_ENGINE = ("engine__kind", "engine__trusted")


@dataclass(frozen=True)
class StoragePaths:
    """Paths of all storage: name -> path by engine and GPU type, '' standing for all types."""

    by_place: Mapping[tuple[str, str], Mapping[str, str]]

    @classmethod
    def read(cls) -> "StoragePaths":
        by_place: dict[tuple[str, str], dict[str, str]] = defaultdict(dict)
        rows = Storage.objects.order_by("name").values_list("engine__name", "gpu_type__name", "name", "path")
        for engine, gpu_type, name, path in rows:
            by_place[engine, gpu_type or ""][name] = path
        return cls(dict(by_place))

    def on(self, engine: str, gpu_type: str) -> dict[str, str]:
        """Name -> path on nodes of this engine and GPU type; a path of the GPU type comes before the engine's."""
        return {**self.by_place.get((engine, ""), {}), **self.by_place.get((engine, gpu_type), {})}


def missing_storage() -> dict[int, frozenset[str]]:
    """Node (primary key) -> the storage that was found missing there lately."""
    missing: dict[int, set[str]] = defaultdict(set)
    for node, name in MissingStorage.objects.values_list("node", "name"):
        missing[node].add(name)
    return {node: frozenset(names) for node, names in missing.items()}


def nodes_with(needs: Collection[str]) -> set[int]:
    """Primary keys of the nodes that meet all requirements, without nodes where storage was found missing lately."""
    paths, missing = StoragePaths.read(), missing_storage()
    nodes = Node.objects.values_list("pk", "engine__name", "gpu_type__name", "containers", *OF_ENGINE)
    has = {
        pk: (paths.on(engine, gpu_type).keys() - missing.get(pk, frozenset()))
        | offers(containers, kind, trusted=trusted)
        for pk, engine, gpu_type, containers, kind, trusted in nodes
    }
    return {pk for pk, names in has.items() if {*needs} <= names}


def nodes_without(storage: Storage) -> list[str]:
    """Names of the nodes on which an attempt did not find it lately."""
    missing = MissingStorage.objects.filter(name=storage.name, node__engine__name=storage.engine_id)
    if storage.gpu_type_id:
        missing = missing.filter(node__gpu_type=storage.gpu_type_id)
    return list(missing.order_by("node__name").values_list("node__name", flat=True))


def forget_missing_storage(now: datetime) -> None:
    """Let jobs try the nodes again after a while."""
    MissingStorage.objects.filter(at__lt=now - TRIED_AGAIN_AFTER).delete()


def storage_was_found(node_name: str) -> None:
    """Let jobs use a node again after a test found all of its storage."""
    MissingStorage.objects.filter(node__name=node_name).delete()
