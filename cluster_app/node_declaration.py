"""Check of a declared node against its engine's report; a node that differs is refused, with the reported values."""

from cluster_app.engine_reports import nodes_in_words
from cluster_app.errors import NotReported
from cluster_app.models import Engine

LOCAL = Engine.Kind.LOCAL
REMEDY = "tick emulated, or choose the engine that has the node"


def refuse_unreported(engine: Engine, name: str, gpu_type: str, gpus: int, *, emulated: bool) -> None:
    """Raise `NotReported` for a node that differs from its engine's report; not before the engine's first report."""
    if emulated:
        if engine.kind != LOCAL:
            raise NotReported(
                "emulated", "Only the engine of this machine has emulated nodes: choose it, or untick this."
            )
        return
    if engine.heard_at is None:
        return
    if name not in engine.inventory:
        raise NotReported("engine", _not_there(engine, name, gpu_type))
    found = engine.inventory[name]
    if found["gpu_type"] != gpu_type or found["gpus"] < gpus:
        raise NotReported("gpus", _other(engine, name, f"{found['gpus']} {found['gpu_type']}", f"{gpus} {gpu_type}"))


def _not_there(engine: Engine, name: str, gpu_type: str) -> str:
    if engine.kind != LOCAL:
        return f"The engine {engine.name} does not report {name}; it reports: {nodes_in_words(engine)}."
    if not engine.inventory:
        return f"This machine has 0 {gpu_type} GPUs: {REMEDY}."
    return f"This machine is {nodes_in_words(engine)}, not {name}: {REMEDY}."


def _other(engine: Engine, name: str, found: str, asked: str) -> str:
    if engine.kind == LOCAL:
        return f"This machine has {found} GPUs, not {asked}: {REMEDY}."
    return f"The engine {engine.name} reports {found} GPUs on {name}, not {asked}."
