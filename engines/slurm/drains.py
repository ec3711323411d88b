"""Drains in Slurm of nodes that are out of service in Motley: what is to be changed. Pure.

A drain is Motley's own if its reason begins with the name of this service. Those of others are never touched: neither
replaced nor undone.
"""

from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

from engines.slurm.parsing import SlurmNode


class DrainChange(NamedTuple):
    """Nodes of which Slurm is asked the same; an empty note ends their drain."""

    note: str
    nodes: tuple[str, ...]
    """As Motley names them."""


def drain_changes(nodes: Mapping[str, SlurmNode], wanted: Mapping[str, str], *, mark: str) -> list[DrainChange]:
    """The changes after which Motley's own drains are those of `wanted`: node → reason, empty for one in service.

    A node that Slurm does not hear is drained when it is back: the reason why it is down would be lost.
    """
    by_note: dict[str, list[str]] = defaultdict(list)
    for name, reason in wanted.items():
        node, note = nodes.get(name), _note(reason, mark) if reason else ""
        if node is not None and _is_to_change(node, note, mark):
            by_note[note].append(name)
    return [DrainChange(note, tuple(names)) for note, names in by_note.items()]


def _is_to_change(node: SlurmNode, note: str, mark: str) -> bool:
    is_drained = "DRAIN" in node.flags
    if is_drained and node.note.startswith(mark):
        return node.note != note
    return bool(note) and not is_drained and node.state.is_heard


def _note(reason: str, mark: str) -> str:
    return f"{mark} {' '.join(reason.split())}"
