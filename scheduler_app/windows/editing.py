"""Add, validate and delete windows, in the same way for REST, the command and the administration."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction

from audit_app.models import Action
from audit_app.services import note
from cluster_app.models import Gpu, Node
from scheduler_app.models import TimeWindow
from scheduler_app.models.time_window import LONGEST
from scheduler_app.windows.recurrence import Occurrence, Recurrence, fault_of_cron

Columns = Mapping[str, Any]
"""Columns of a window, and `nodes`; those that are not given are missing or None."""
Fault = tuple[str, str]
"""A field, and what is wrong with it."""
OF_RESERVATION = ("team", "gpu_type", "gpus")
EARLIEST, FARTHEST = datetime(2000, 1, 1, tzinfo=UTC), timedelta(days=3650)
"""Of the begin of a window: arithmetic with dates near the limits of the calendar fails."""
OF_MAINTENANCE = ("nodes", "labels")


def kind_of(columns: Columns) -> TimeWindow.Kind:
    """A window that names a team, a GPU type or GPUs is a reservation."""
    reserves = any(columns.get(name) for name in OF_RESERVATION)
    return TimeWindow.Kind.RESERVATION if reserves else TimeWindow.Kind.MAINTENANCE


@transaction.atomic
def add_window(columns: Columns, *, actor: User) -> TimeWindow:
    """Add a window whose columns have no faults."""
    nodes = columns.get("nodes") or ()
    given = {name: value for name, value in columns.items() if name != "nodes"}
    window = TimeWindow.objects.create(**given, kind=kind_of(columns), created_by=actor)
    window.nodes.set(nodes)
    note(Action.WINDOW_ADD, actor=actor, target=str(window), target_id=window.pk)
    return window


@transaction.atomic
def delete_window(window: TimeWindow, *, actor: User) -> None:
    """Delete the window; nodes that are drained for it return to service."""
    note(Action.WINDOW_DELETE, actor=actor, target=str(window), target_id=window.pk)
    window.delete()


def window_faults(columns: Columns, now: datetime) -> Iterator[Fault]:
    """Faults of a window by field, each with what to write instead."""
    yield from _faults_of_times(columns, now)
    reserves = (columns.get("kind") or kind_of(columns)) == TimeWindow.Kind.RESERVATION
    yield from _faults_of_reservation(columns) if reserves else _faults_of_maintenance(columns)


def _faults_of_times(columns: Columns, now: datetime) -> Iterator[Fault]:
    begins_at, ends_at, cron = columns.get("begins_at"), columns.get("ends_at"), columns.get("cron")
    if begins_at is None or ends_at is None:
        return
    if not EARLIEST <= begins_at <= now + FARTHEST:
        yield "begins_at", f"Give a time after {EARLIEST.year - 1}, at most ten years from now."
    elif ends_at <= begins_at:
        yield "ends_at", "A window ends after it begins: give a later time."
    elif ends_at - begins_at > LONGEST:
        yield "ends_at", f"A window has at most {LONGEST.days} days: take the nodes out of service instead."
    elif cron:
        times = Occurrence(begins_at, ends_at), cron, columns.get("zone") or "UTC", columns.get("repeats_until")
        if fault := fault_of_cron(Recurrence(*times)):
            yield "cron", fault
    elif ends_at <= now:
        yield "ends_at", "This window is over already: give a time in the future."
    if columns.get("repeats_until") and not cron:
        yield "repeats_until", "Without cron the window comes once: leave this out, or give cron."


def _faults_of_maintenance(columns: Columns) -> Iterator[Fault]:
    labels = columns.get("labels") or {}
    for name in OF_RESERVATION:
        if columns.get(name):
            yield name, "A maintenance is of nodes: leave this out."
    if not isinstance(labels, dict) or not all(isinstance(text, str) for pair in labels.items() for text in pair):
        yield "labels", 'Write a map from text to text, such as {"rack": "r3"}.'
    elif labels and not any(labels.items() <= of_node.items() for of_node in _labels()):
        yield "labels", "No node has all of these labels."
    elif not labels and not columns.get("nodes"):
        yield "nodes", "Name the nodes, or labels that they have."


def _labels() -> list[dict[str, str]]:
    return list(Node.objects.exclude(labels={}).values_list("labels", flat=True))


def _faults_of_reservation(columns: Columns) -> Iterator[Fault]:
    for name in OF_MAINTENANCE:
        if columns.get(name):
            yield name, "A reservation is of a GPU type, on whichever nodes have it: leave this out."
    missing = [name for name in OF_RESERVATION if not columns.get(name)]
    for name in missing:
        yield name, "A reservation has a team, a GPU type and a number of GPUs."
    if not missing:
        there = Gpu.objects.present().filter(node__gpu_type=columns["gpu_type"]).count()
        if columns["gpus"] > there:
            yield "gpus", f"There are {there} {columns['gpu_type']} in all."
