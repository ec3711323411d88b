"""Registry of engines by name, each with the nodes that are declared for it."""

from functools import cache

from django.conf import settings

from cluster_app.models import Node
from engines.local.engine import LocalEngine
from engines.protocol import Engine


def engines() -> dict[str, Engine]:
    """The engines that at least one node uses."""
    names: dict[str, list[str]] = {}
    for engine, node in Node.objects.order_by("name").values_list("engine", "name"):
        names.setdefault(engine, []).append(node)
    return {engine: engine_over(engine, tuple(nodes)) for engine, nodes in names.items()}


@cache
def engine_over(name: str, nodes: tuple[str, ...] = ()) -> Engine:
    """The engine of that name over these nodes; cached."""
    return FACTORIES[name](nodes)


def _local(nodes: tuple[str, ...]) -> Engine:
    return LocalEngine(
        settings.MOTLEY_ENGINE_ROOT,
        declared=nodes,
        job_user=settings.MOTLEY_JOB_USER or None,
        path_prefix=settings.MOTLEY_JOB_PATH,
    )


FACTORIES = {Node.Engine.LOCAL.value: _local}
