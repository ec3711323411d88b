"""Mapping of Slurm's node states to Motley's. Pure."""

from collections.abc import Iterator

from engines.protocol import NodeState

_DOWN = {"DOWN", "UNKNOWN", "FUTURE", "REBOOT_ISSUED", "INVALID_REG"}
_CLOSED = {"DRAIN", "FAIL", "REBOOT_REQUESTED", "POWER_DOWN"}
"""Not MAINTENANCE or RESERVED: Slurm adds them late, and to our own reservation, too."""
_POWERED_UP = {"POWERING_UP", "POWER_UP"}
_POWERED_DOWN = {"POWERED_DOWN", "POWERING_DOWN"}
ALLOCATED = {"ALLOCATED", "MIXED", "COMPLETING"}
_SUFFIXES = {
    "*": "NOT_RESPONDING",
    "~": "POWERED_DOWN",
    "#": "POWERING_UP",
    "%": "POWERING_DOWN",
    "!": "POWER_DOWN",
}


def state_flags(text: str) -> frozenset[str]:
    """Words of a node's state: `IDLE+DRAIN`, or `mixed*` for one that does not respond."""
    words: set[str] = set()
    for word in text.split("+"):
        bare = word.rstrip("*~#!%$@^-")
        words.add(bare.upper())
        words |= {_SUFFIXES[mark] for mark in word[len(bare) :] if mark in _SUFFIXES}
    return frozenset(words)


def node_state(flags: frozenset[str], note: str, gpus: dict[str, int]) -> tuple[NodeState, str]:
    """State of the node for Motley, and why."""
    for state, why in _not_in_service(flags):
        if why:
            words = "+".join(sorted(why)).lower()
            return state, f"Slurm says {words}: {note}" if note else f"Slurm says {words}"
    if len(gpus) > 1:
        return (
            NodeState.CORDONED,
            f"it has GPUs of {len(gpus)} types ({', '.join(gpus)}): Motley places on nodes of one",
        )
    return NodeState.OK, ""


def _not_in_service(flags: frozenset[str]) -> Iterator[tuple[NodeState, frozenset[str]]]:
    """States that keep jobs off the node, each with the flags that put it there, if any; the first counts.

    A node that is off and drained is not silent, and nobody should wake it. One that is off and has a job is about to
    be switched on.
    """
    off = flags & _POWERED_DOWN
    drained = flags & _CLOSED - {"POWER_DOWN"}
    yield NodeState.SILENT, flags & _DOWN
    yield NodeState.WAKING, flags & _POWERED_UP or (off if flags & ALLOCATED else frozenset())
    yield NodeState.CORDONED, off | drained if off and drained else frozenset()
    yield NodeState.SLEEPING, off
    yield NodeState.SILENT, flags & {"NOT_RESPONDING"}
    yield NodeState.CORDONED, flags & _CLOSED
