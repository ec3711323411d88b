"""Power drivers: what puts a node to sleep and wakes it. Its engine, else the site's commands, else nothing.

`scheduler_app.round.power` does it.
"""

from django.conf import settings
from django.db.models import QuerySet

from cluster_app.models import Node


def has_commands() -> bool:
    """Whether the site has given both commands, which serve the nodes of all engines without power saving."""
    return bool(settings.MOTLEY_NODE_SLEEP and settings.MOTLEY_NODE_WAKE)


def is_driven(node: Node) -> bool:
    """Whether the node can be put to sleep and woken."""
    return node.engine.saves_power or has_commands()


def driven(nodes: QuerySet[Node]) -> QuerySet[Node]:
    """Those that can be put to sleep and woken."""
    return nodes if has_commands() else nodes.filter(engine__options__power_saving=True)
