"""The answers of the service as types. They are the JSON itself: what a newer service adds is kept, not refused."""

from dataclasses import dataclass
from typing import Any, TypedDict

FINAL_STATES = frozenset({"succeeded", "failed", "cancelled", "timed_out"})
ACTIVE_STATES = ("queued", "starting", "running", "stopping")


class Reason(TypedDict):
    """One constraint that keeps a job waiting; the first of a job is the headline."""

    code: str
    detail: str
    numbers: dict[str, float]


class Progress(TypedDict):
    step: int
    total_steps: int | None
    rate: float | None
    at: str


class Attempt(TypedDict):
    number: int
    state: str
    outcome: str | None
    exit_code: int | None
    gpu_type: str
    gpu_count: int
    nodes: list[str]
    started_at: str | None
    ended_at: str | None


class Job(TypedDict):
    id: str
    name: str
    team: str
    owner: str
    state: str
    reason: str
    message: str
    reasons: list[Reason]
    held: bool
    spec: dict[str, Any]
    created_at: str
    started_at: str | None
    finished_at: str | None
    gpu_type: str | None
    gpu_count: int | None
    nodes: list[str]
    attempts: list[Attempt]
    progress: Progress | None
    rates_used: list[dict[str, Any]]
    work_lost_gpu_seconds: float
    exit_code: int | None


class Node(TypedDict):
    name: str
    gpu_type: str
    gpus: int
    free_gpus: int
    state: str
    reason: str
    emulated: bool
    engine: str
    cpus: int
    memory_mib: int
    labels: dict[str, str]


class Round(TypedDict):
    number: int
    started_at: str
    policy: str
    jobs: int
    objective: float | None
    bound: float | None
    gap: float | None
    solve_seconds: float
    starts: int
    stops: int
    moves: int
    status: str
    prices: dict[str, float]


@dataclass(frozen=True)
class LogChunk:
    """Bytes of a log; ask again from `next_offset`. `complete`: the attempt has ended and nothing follows."""

    data: bytes
    next_offset: int
    complete: bool
