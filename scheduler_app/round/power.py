"""Driver of sleeping nodes: starts power commands, records their ends, and follows nodes that wake."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial

from django.conf import settings

from accounting_app.energy.node_power import is_driven
from cluster_app.engine_reports import Inventory
from cluster_app.models import FIRST_PAUSE, FOREIGN_USE, POWERED_DOWN, SUSPECT_AFTER, Engine, Node, NodePower
from cluster_app.node_health import OFF
from cluster_app.services import give_up_waking, keep_awake, note_awake, put_to_sleep, wake
from connections_app.engine_registry import engine_named
from engines.power_commands import PowerCommandEnd, PowerCommands, PowerTask, command_of_site
from engines.protocol import NodeState, PowerCommand
from scheduler_app.models import SchedulerLease
from scheduler_app.round.lease import Fence

log = logging.getLogger(__name__)
State = Node.State
COMMANDS = PowerCommands()
"""Of this process. After its end a command that nobody heard of is started again: it must be safe to repeat."""
MOST_AT_ONCE = 16
LONGEST_REASON = 200
"""Characters of `Node.reason`."""
LONGEST_PAUSE = timedelta(minutes=10)
BOOT_TIMES = 3
"""A node that does not report within so many boot times needs a person."""


def drive_power(fence: Fence, now: datetime) -> None:
    """Start the commands that are due, and follow the nodes that sleep or are being woken. Idempotent."""
    for end in COMMANDS.ended():
        with fence.transaction():
            _record_end(end, now)
    powered_down = NodePower.objects.filter(node__state__in=POWERED_DOWN)
    rows = list(powered_down.select_related("node__gpu_type", "node__engine").defer("node__engine__inventory"))
    if not rows:
        return
    listening_since = SchedulerLease.objects.get(pk=SchedulerLease.Loop.ENGINES).listening_since
    reported = reported_states(row.node.engine.name for row in rows)
    with fence.transaction():
        followed = [row for row in rows if _follow(row, reported.get(row.node.name, ""), now, listening_since)]
    for row in due_commands([row for row in followed if is_driven(row.node)], COMMANDS.nodes, now):
        _start(fence, row, now)


def reported_states(engines: Iterable[str]) -> dict[str, str]:
    """Node → the state that its engine reported last."""
    found = Engine.objects.filter(name__in=set(engines)).values_list("inventory", flat=True)
    return {name: one.get("state", "") for nodes in found for name, one in nodes.items()}


def sleep_as_reported(conditions: Mapping[str, Inventory | None], now: datetime) -> None:
    """Nodes in service that their site has switched off sleep from now on; not those of which a GPU is claimed.

    Slurm, say, may power down idle nodes by itself.
    """
    for engine, nodes in conditions.items():
        off = {name: one["reason"] for name, one in (nodes or {}).items() if one["state"] in OFF}
        ready = Node.objects.filter(engine__name=engine, name__in=off, state=State.READY) if off else ()
        for node in ready:
            put_to_sleep(node, reason=off[node.name][:LONGEST_REASON] or "its engine says so", now=now)


def _follow(row: NodePower, reported: str, now: datetime, listening_since: datetime) -> bool:
    """Act on the engine's report of the node; False if its power state has changed since it was read."""
    if is_awake(row):
        note_awake(row.node, now)
    elif is_overdue(row, now, listening_since):
        _give_up(row)
    elif is_in_use(row):
        keep_awake(row.node, reason="in use outside Motley", now=now)
    elif was_switched_on(row, reported):
        wake(row.node, reason="it was switched on outside Motley", now=now)
    else:
        if fell_silent(row, reported, now, listening_since):
            NodePower.objects.filter(pk=row.pk, since=row.since).update(silent_at=now)
        return True
    return False


def is_awake(row: NodePower) -> bool:
    """Whether the node has reported since it was woken; without a driver a person wakes it. Pure.

    An engine may report a node for minutes after it was switched off: until its silence was noticed, what is reported
    within a boot time after the wake is taken for that.
    """
    woken_at = row.done_at if is_driven(row.node) else row.since
    if row.node.state != State.WAKING or woken_at is None or row.node.heard_at is None:
        return False
    if row.silent_at is None:
        return row.node.heard_at >= woken_at + _boot_time(row)
    return row.node.heard_at > max(woken_at, row.silent_at)


def is_overdue(row: NodePower, now: datetime, listening_since: datetime) -> bool:
    """Whether the node has not reported for too long, although its engine answers. Pure.

    Counted from the end of the wake command, or from its first failure.
    """
    began = row.done_at or row.failed_at if is_driven(row.node) else row.since
    if row.node.state != State.WAKING or began is None or row.node.engine.fault:
        return False
    return now - max(began, _hearing_since(row, listening_since)) > BOOT_TIMES * _boot_time(row)


def is_in_use(row: NodePower) -> bool:
    """Whether jobs outside Motley use a node that is to sleep, before its command is started. Pure."""
    untold = row.node.state == State.SLEEPING and row.sent_at is None
    return untold and any(getattr(row.node, name) for name in FOREIGN_USE)


def was_switched_on(row: NodePower, reported: str) -> bool:
    """Whether a sleeping node was off and is now on, or booting, for example because the site has woken it. Pure.

    Not while it is being switched off.
    """
    is_told = row.done_at is not None or row.sent_at is None
    sleeps = row.node.state == State.SLEEPING and row.silent_at is not None and is_told
    return sleeps and reported in {NodeState.OK, NodeState.CORDONED, NodeState.WAKING}


def fell_silent(row: NodePower, reported: str, now: datetime, listening_since: datetime) -> bool:
    """Whether the node no longer reports, although its engine and the scheduler work. Pure."""
    if row.silent_at is not None or row.node.engine.fault:
        return False
    if reported in OFF:
        return True
    if row.node.heard_at is None:
        return False
    return now - max(row.node.heard_at, _hearing_since(row, listening_since)) > SUSPECT_AFTER


def _hearing_since(row: NodePower, listening_since: datetime) -> datetime:
    """Time since which the engine has answered and the scheduler has polled it."""
    return max(listening_since, row.node.engine.since or listening_since)


def _boot_time(row: NodePower) -> timedelta:
    return timedelta(seconds=row.node.gpu_type.boot_s)


def due_commands(rows: Sequence[NodePower], running: set[str], now: datetime) -> list[NodePower]:
    """Rows whose command is to be started now. Pure.

    Wakes come first. A command that another process started is given its time, and some more.
    """
    longest = max(LONGEST_PAUSE, settings.MOTLEY_NODE_POWER_TIMEOUT + FIRST_PAUSE)
    due = [
        row
        for row in rows
        if row.done_at is None
        and row.node.name not in running
        and (row.retry_at is None or not now < row.retry_at <= now + longest)  # else a clock was set back
        and (row.sent_at is None or row.over_at is None or not row.sent_at <= now < row.over_at)
        and (row.node.state == State.WAKING or is_free(row))
    ]
    first = sorted(due, key=lambda row: (row.node.state != State.WAKING, row.since, row.node.name))
    return first[: max(MOST_AT_ONCE - len(running), 0)]


def is_free(row: NodePower) -> bool:
    """Whether the engine has reported the node as unused by others since no job can be placed there. Pure."""
    heard_at = None if row.node.engine.fault else row.node.engine.heard_at
    return heard_at is not None and heard_at > row.since and not any(getattr(row.node, name) for name in FOREIGN_USE)


def _start(fence: Fence, row: NodePower, now: datetime) -> None:
    """Start the command, unless another process did, or the command was replaced since the row was read."""
    with fence.transaction():
        if not _claim(row, now):
            return
    is_wake = row.node.state == State.WAKING
    log.info("%s is told to %s", row.node.name, "wake" if is_wake else "sleep")
    command = partial(_command, row.node, wake=is_wake)
    timeout_s = settings.MOTLEY_NODE_POWER_TIMEOUT.total_seconds()
    COMMANDS.start(PowerTask(row.node.name, row.since, now), command, timeout_s=timeout_s)


def _command(node: Node, *, wake: bool) -> PowerCommand:
    """The command of the node's engine, else that of the site."""
    own = engine_named(node.engine.name).power_command(node.name, wake=wake) if node.engine.saves_power else None
    return own or command_of_site(settings.MOTLEY_NODE_WAKE if wake else settings.MOTLEY_NODE_SLEEP, node.name)


def _claim(row: NodePower, now: datetime) -> bool:
    """Mark the command as started; the node is locked, as cordons and wakes change it first."""
    unchanged = Node.objects.select_for_update().filter(pk=row.pk, state=row.node.state)
    if not list(unchanged.values_list("pk")):
        return False
    unsent = NodePower.objects.filter(pk=row.pk, since=row.since, sent_at=row.sent_at, done_at=None)
    return bool(unsent.update(sent_at=now))


def _record_end(end: PowerCommandEnd, now: datetime) -> None:
    """Record the end of a node's command; if another one has been requested since, it can be started now."""
    task = end.task
    log.log(logging.WARNING if end.fault else logging.INFO, "power command of %s: %s", task.node, end.fault or "done")
    row = NodePower.objects.filter(node__name=task.node).first()
    if row is None:
        return
    its = NodePower.objects.filter(pk=row.pk, since=task.since, sent_at=task.sent_at, done_at=None)
    if not its.update(**_ended(row, end, now)):
        NodePower.objects.filter(pk=row.pk, sent_at=None, times=0).exclude(since=task.since).update(retry_at=None)


def _ended(row: NodePower, end: PowerCommandEnd, now: datetime) -> dict[str, object]:
    """The columns that a command's end changes. Pure."""
    if not end.fault:
        return {"done_at": now, "fault": ""}
    pause = min(FIRST_PAUSE * 2 ** min(row.times, 10), LONGEST_PAUSE)
    again = {"sent_at": None, "retry_at": now + pause}
    return {"fault": end.fault[:500], "times": row.times + 1, "failed_at": row.failed_at or now, **again}


def _give_up(row: NodePower) -> None:
    late = f"it did not report within {BOOT_TIMES * row.node.gpu_type.boot_s} s after it was woken"
    reason = f"{late}; the site's command failed" if row.fault else late
    log.warning("%s: %s", row.node.name, reason)
    give_up_waking(row.node, reason=reason)
