"""Inventory: GPU types, engines, nodes, GPUs, storage, and the history of nodes."""

from cluster_app.models.engine import LOCAL_ENGINE, SERVERS_ENGINE, WITH_AGENTS, Engine
from cluster_app.models.gpu import MOST_GPUS_PER_NODE, Gpu, slowness_in_words
from cluster_app.models.gpu_type import GpuType
from cluster_app.models.node import (
    FOREIGN_USE,
    LOST_AFTER,
    POWERED_DOWN,
    SUSPECT_AFTER,
    UNHEARD,
    Node,
    NodeQuerySet,
    in_service,
)
from cluster_app.models.node_history import NodeEvent, NodeInterval
from cluster_app.models.node_power import FIRST_PAUSE, NodePower
from cluster_app.models.retiring import RETIRED_AT, RetiringQuerySet
from cluster_app.models.storage import MissingStorage, Storage
from cluster_app.models.validators import name_is_plain, zone_is_known

__all__ = [
    "FIRST_PAUSE",
    "FOREIGN_USE",
    "LOCAL_ENGINE",
    "LOST_AFTER",
    "MOST_GPUS_PER_NODE",
    "POWERED_DOWN",
    "RETIRED_AT",
    "SERVERS_ENGINE",
    "SUSPECT_AFTER",
    "UNHEARD",
    "WITH_AGENTS",
    "Engine",
    "Gpu",
    "GpuType",
    "MissingStorage",
    "Node",
    "NodeEvent",
    "NodeInterval",
    "NodePower",
    "NodeQuerySet",
    "RetiringQuerySet",
    "Storage",
    "in_service",
    "name_is_plain",
    "slowness_in_words",
    "zone_is_known",
]
