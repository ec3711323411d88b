"""The timeline: what ran on the GPUs and what is expected to run, with outages, windows and prices."""

from typing import TypedDict

from motley_client.responses.forecasts import Interval


class TimelineJob(TypedDict):
    """A job of your teams; of jobs of others neither id nor name is told."""

    id: str
    name: str
    team: str


class TimelineRun(TypedDict):
    """GPUs that an attempt had, or has."""

    job: TimelineJob | None
    attempt: int | None
    gpu_type: str
    gpus: int
    nodes: list[str]
    since: str
    until: str | None
    outcome: str
    round: int


class ExpectedRun(TypedDict):
    """Expected start and end of a job; the start is None if it is running."""

    job: TimelineJob | None
    gpu_type: str
    gpus: int
    start: Interval | None
    finish: Interval


class Outage(TypedDict):
    """Time in which a node was down or out of service."""

    node: str
    what: str
    reason: str
    since: str
    until: str | None


class TimelineWindow(TypedDict):
    """An occurrence of a window of nodes."""

    id: int
    kind: str
    nodes: list[str]
    team: str
    reason: str
    since: str
    until: str


class TypePrice(TypedDict):
    """Price of a GPU type over some time, past or planned."""

    gpu_type: str
    since: str
    until: str
    price: float
    planned: bool
    load: float | None


class Timeline(TypedDict):
    """What ran on the GPUs, and what is expected to run."""

    since: str
    now: str
    runs: list[TimelineRun]
    truncated: bool
    expected: list[ExpectedRun]
    outages: list[Outage]
    windows: list[TimelineWindow]
    prices: list[TypePrice]
