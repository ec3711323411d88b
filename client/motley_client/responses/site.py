"""Engines, announcements, and which nodes could sleep."""

from typing import TypedDict


class Announcement(TypedDict):
    """An announcement of administrators to all who use the site."""

    id: int
    text: str
    is_warning: bool
    begins_at: str
    ends_at: str | None


class Engine(TypedDict):
    """An engine, and whether it answers; its options are for administrators."""

    name: str
    kind: str
    enabled: bool
    heard_at: str | None
    since: str | None
    fault: str
    options: dict[str, object] | None


class NodesForecast(TypedDict):
    """Nodes expected to be in use at a time in the coming hours."""

    hours: float
    nodes: float


class PoweredDown(TypedDict):
    """A node that sleeps or wakes."""

    name: str
    state: str
    since: str
    fault: str


class TypeEnergy(TypedDict):
    """Nodes of a GPU type in use, and those that could sleep."""

    gpu_type: str
    nodes: int
    used: int
    forecast: list[NodesForecast]
    forecast_by: str
    awake: int
    could_sleep: list[str]
    asleep: list[PoweredDown]
    saved_w: float
    decided_at: str | None


class Energy(TypedDict):
    """Which nodes could sleep, by GPU type."""

    types: list[TypeEnergy]
