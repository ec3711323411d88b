"""Driver of nodes that sleep: the site's commands are started, their ends are recorded, and what wakes is followed."""

import logging
from collections.abc import Sequence
from datetime import datetime, timedelta

from django.conf import settings

from cluster_app.models import POWERED_DOWN, Node, NodePower
from cluster_app.services import give_up_waking, note_awake
from engines.power_commands import PowerCommandEnd, PowerCommands

log = logging.getLogger(__name__)
State = Node.State
COMMANDS = PowerCommands()
"""Of this process. After its end a command that nobody heard of is started again: it must be safe to repeat."""
MOST_AT_ONCE = 16
FIRST_PAUSE, LONGEST_PAUSE = timedelta(seconds=10), timedelta(minutes=10)
BOOT_TIMES = 3
"""A node that does not report within so many boot times needs a person."""


def has_driver() -> bool:
    """Whether the site has given both commands; else nobody puts a node to sleep."""
    return bool(settings.MOTLEY_NODE_SLEEP and settings.MOTLEY_NODE_WAKE)


def drive_power(now: datetime) -> None:
    """Start the commands that are due, and follow the nodes that are being woken. Idempotent."""
    for end in COMMANDS.ended():
        _record_end(end, now)
    rows = list(NodePower.objects.filter(node__state__in=POWERED_DOWN).select_related("node__gpu_type"))
    if not rows:
        return
    waking = [row for row in rows if row.node.state == State.WAKING]
    for row in waking:
        if is_awake(row):
            note_awake(row.node)
        elif now - row.since > _patience(row):
            _give_up(row)
    if has_driver():
        _start(due_commands(rows, COMMANDS.nodes, now), now)


def is_awake(row: NodePower) -> bool:
    """Whether the engine has heard from the node since it was woken; without a driver a person wakes it."""
    woken_at = row.done_at if has_driver() else row.since
    return woken_at is not None and row.node.heard_at is not None and row.node.heard_at > woken_at


def due_commands(rows: Sequence[NodePower], running: set[str], now: datetime) -> list[NodePower]:
    """Rows whose command is to be started now. Pure.

    Wakes come first. A command that another process started is given its time, and some more.
    """
    patience = settings.MOTLEY_NODE_POWER_TIMEOUT + FIRST_PAUSE
    due = [
        row
        for row in rows
        if row.done_at is None
        and row.node.name not in running
        and (row.retry_at is None or not now < row.retry_at <= now + LONGEST_PAUSE)  # else a clock was set back
        and (row.sent_at is None or not now - patience < row.sent_at <= now)
    ]
    first = sorted(due, key=lambda row: (row.node.state != State.WAKING, row.since, row.node.name))
    return first[: max(MOST_AT_ONCE - len(running), 0)]


def _start(rows: Sequence[NodePower], now: datetime) -> None:
    timeout_s = settings.MOTLEY_NODE_POWER_TIMEOUT.total_seconds()
    for row in rows:
        NodePower.objects.filter(pk=row.pk).update(sent_at=now)
        is_wake = row.node.state == State.WAKING
        log.info("%s is told to %s", row.node.name, "wake" if is_wake else "sleep")
        template = settings.MOTLEY_NODE_WAKE if is_wake else settings.MOTLEY_NODE_SLEEP
        COMMANDS.start(row.node.name, template, timeout_s=timeout_s)


def _record_end(end: PowerCommandEnd, now: datetime) -> None:
    """Record the end of a node's command, unless it has been told something else since."""
    log.log(logging.WARNING if end.fault else logging.INFO, "power command of %s: %s", end.node, end.fault or "done")
    row = NodePower.objects.filter(node__name=end.node, done_at=None).exclude(sent_at=None).first()
    if row is None:
        return
    if not end.fault:
        row.done_at, row.fault = now, ""
    else:
        row.fault, row.times = end.fault[:500], row.times + 1
        row.sent_at, row.retry_at = None, now + min(FIRST_PAUSE * 2 ** min(row.times - 1, 10), LONGEST_PAUSE)
    row.save(update_fields=["done_at", "fault", "times", "sent_at", "retry_at"])


def _patience(row: NodePower) -> timedelta:
    return BOOT_TIMES * timedelta(seconds=row.node.gpu_type.boot_s)


def _give_up(row: NodePower) -> None:
    since = f"it did not report within {BOOT_TIMES * row.node.gpu_type.boot_s} s after it was woken"
    reason = f"{since}; the command failed: {row.fault}" if row.fault else since
    log.warning("%s: %s", row.node.name, reason)
    give_up_waking(row.node, reason=reason[:200])
