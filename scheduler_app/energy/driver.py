"""Driver of nodes that sleep: whether there is one. `scheduler_app.round.power` is it."""

from django.conf import settings


def has_driver() -> bool:
    """Whether the site has given both commands; else nobody puts a node to sleep."""
    return bool(settings.MOTLEY_NODE_SLEEP and settings.MOTLEY_NODE_WAKE)
