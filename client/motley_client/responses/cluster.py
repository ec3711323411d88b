"""Nodes, servers, GPU types, storage, measured rates, and time windows."""

from typing import NotRequired, TypedDict

from motley_client.responses.forecasts import EmptyForecast


class Finding(TypedDict):
    """Result of one check of a server."""

    name: str
    passed: bool
    said: str


class Server(TypedDict):
    """A machine that may join, or has joined."""

    name: str
    trusted: bool
    site: bool
    team: str | None
    state: str
    created_at: str
    join_expires_at: str
    joined_at: str | None
    heard_at: str | None
    release: str
    python: str
    up_to_date: bool | None
    update_fault: str
    checked_at: str | None
    findings: list[Finding]
    left_at: str | None
    revoked_at: str | None


class NewServer(Server):
    """A machine that may join now."""

    token: str
    """The join token, shown this once."""


class Node(TypedDict):
    name: str
    gpu_type: str
    gpus: int
    slow_gpus: NotRequired[int]
    availability: NotRequired[float]
    """Part of the time in which it is up."""
    mean_up_s: NotRequired[float]
    free_gpus: int
    state: str
    health: str
    reason: str
    emulated: bool
    engine: str
    engine_message: str
    limits: str
    containers: str
    foreign_gpus: int
    foreign_cpus: int
    foreign_memory_mib: int
    cpus: int
    memory_mib: int
    storage_mib_s: int | None
    price_per_gpu_hour: float | None
    labels: dict[str, str]
    capacity_type: str
    """stable, spot or volunteer."""
    notice_s: int
    """Seconds between the announcement that it goes and its end."""
    lent_from: str | None
    lent_until: str | None
    lent_zone: str
    heard_at: str | None
    jobs_running: int
    empty: bool
    empty_at: str | None
    empty_forecast: "NotRequired[EmptyForecast | None]"


class GpuType(TypedDict):
    name: str
    memory_mib: int
    tflops: float | None
    bandwidth_gbs: float | None
    power_w: float
    price_per_hour: float
    gpus: int
    free_gpus: int
    retired_at: NotRequired[str | None]


class Storage(TypedDict):
    """A named storage on the nodes of an engine, or of one GPU type there."""

    name: str
    engine: str
    gpu_type: str | None
    path: str | None
    """None unless you are an administrator."""
    missing_on: list[str]


class Throughput(TypedDict):
    """Measured throughput of a workload in one configuration."""

    team: str
    workload: str
    gpu_type: str
    gpus: int
    nodes: int
    batch_size: int
    steps_per_second: float
    reports: int
    spread: float | None
    runs: int
    """Attempts behind the figure."""
    updated_at: str


class Occurrence(TypedDict):
    begins_at: str
    ends_at: str


class Window(TypedDict):
    """Window of nodes: maintenance, or GPUs reserved for a team; `next` goes on or comes next, null: it is over."""

    id: int
    kind: str
    reason: str
    nodes: list[str]
    labels: dict[str, str]
    team: str | None
    gpu_type: str | None
    gpus: int | None
    begins_at: str
    ends_at: str
    cron: str
    zone: str
    repeats_until: str | None
    next: Occurrence | None
