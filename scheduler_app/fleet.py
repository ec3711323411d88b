"""The engines by name, each over the nodes that are declared for it."""

from functools import cache

from django.conf import settings

from cluster_app.models import Node
from engines.local import LocalEngine
from engines.protocol import Engine


def engines() -> dict[str, Engine]:
    """Every engine that some node uses."""
    names: dict[str, list[str]] = {}
    for engine, node in Node.objects.order_by("name").values_list("engine", "name"):
        names.setdefault(engine, []).append(node)
    return {engine: engine_over(engine, tuple(nodes)) for engine, nodes in names.items()}


@cache
def engine_over(name: str, nodes: tuple[str, ...] = ()) -> Engine:
    """One engine; cheap to ask for again."""
    return _MAKERS[name](nodes)


def _local(nodes: tuple[str, ...]) -> Engine:
    return LocalEngine(
        settings.MOTLEY_ENGINE_ROOT,
        declared=nodes,
        job_user=settings.MOTLEY_JOB_USER or None,
        path_prefix=settings.MOTLEY_JOB_PATH,
    )


_MAKERS = {Node.Engine.LOCAL.value: _local}
