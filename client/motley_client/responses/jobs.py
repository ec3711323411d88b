"""Jobs, their attempts, events, GPUs and curves; arrays; jobs that wait for each other."""

from enum import StrEnum
from typing import Any, NotRequired, TypedDict

from motley_client.responses.forecasts import QueueForecast


class State(StrEnum):
    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"


ACTIVE_STATES = (State.QUEUED, State.STARTING, State.RUNNING, State.STOPPING)
FINAL_STATES = frozenset(set(State) - set(ACTIVE_STATES))


class Reason(TypedDict):
    """One reason why a job waits; the first of a job is its headline."""

    code: str
    detail: str
    numbers: dict[str, float]
    figures: NotRequired[str]


class RanOn(TypedDict):
    """GPUs of the latest attempt of a job that has ended."""

    gpu_type: str
    gpu_count: int
    nodes: list[str]


class Progress(TypedDict):
    step: int
    total_steps: int | None
    rate: float | None
    at: str | None


class Attempt(TypedDict):
    id: int
    number: int
    state: str
    outcome: str | None
    exit_code: int | None
    message: str
    gpu_type: str
    gpu_count: int
    nodes: list[str]
    engine: str
    devices: dict[str, str]
    site_job: str
    round_number: int
    rate: float | None
    rate_source: str
    """Where `rate` comes from: measured, declared, completed, fitted, estimated, or assumed, when it is None."""
    measured_rate: float | None
    measures: bool
    batch_size: int
    cpus_per_gpu: int
    memory_per_gpu_mib: int
    peak_memory_mib: int
    """Most memory that it held on one of its nodes; 0: not measured."""
    cpu_memory: str
    """How the round chose CPUs and memory; empty, with 0 for both: as the job asked."""
    claimed_at: str
    launched_at: str | None
    started_at: str | None
    code_s: float | None
    """Seconds before its start in which its code and its checkpoints came; None: there were none, or not known."""
    setup_s: float | None
    """Seconds after its start until it had its environment."""
    restore_s: float | None
    """Seconds in which its program read the checkpoint of an earlier attempt."""
    restored_at: str | None
    first_step_at: str | None
    step_at: str | None
    stopping_at: str | None
    ended_at: str | None
    stop_reason: str
    stop_note: str
    """Who or what it made room for."""
    checkpoint_at: str | None
    checkpoint_s: float | None
    """Seconds that its last checkpoint took."""
    first_step: int | None
    step: int | None
    loss: float | None
    invalid_lines: int
    work_lost_gpu_s: float


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
    array: str | None
    array_index: int | None
    recurring: NotRequired[int | None]
    """Id of the recurring job of which it is a run."""
    links: NotRequired[dict[str, str]]
    """Pages elsewhere that show it, as it said itself."""
    recipe: NotRequired[int | None]
    """Id of the recipe by which it was submitted, and its version."""
    recipe_version: NotRequired[int | None]
    continues: NotRequired[str | None]
    """Id of the job with whose checkpoint it began, the name of that (empty: all), and its step."""
    continues_from: NotRequired[str]
    continues_step: NotRequired[int | None]
    spec: dict[str, Any]
    workload: str
    weight: float
    created_at: str
    started_at: str | None
    finished_at: str | None
    files_deleted_at: str | None
    updated_at: str
    gpu_type: str | None
    gpu_count: int
    nodes: list[str]
    ran_on: NotRequired["RanOn | None"]
    """GPUs of the last attempt of a job that has ended."""
    progress: Progress | None
    work_lost_gpu_seconds: float
    exit_code: int | None
    forecast: "NotRequired[QueueForecast | None]"
    """In lists alone."""


class GpuSummary(TypedDict):
    """One GPU over the run of an attempt; None: its driver does not say."""

    node: str
    index: int
    utilization: float | None
    memory_used_max_mib: float | None
    power_w: float | None
    temperature_max_c: float | None
    ecc_errors: int | None
    slower_by: NotRequired[float]


class GpuPoint(TypedDict):
    at: str
    utilization: float | None
    memory_used_mib: float | None
    power_w: float | None
    temperature_c: float | None


class JobGpus(TypedDict):
    """What was read of the GPUs of a job's latest attempt; `emulated`: the figures are made up."""

    attempt: int | None
    emulated: bool
    idle_gpus: int
    idle_since: str | None
    energy_wh: float | None
    gpus: list[GpuSummary]
    course: list[GpuPoint]


class GpuNow(TypedDict):
    """A GPU of a node: means of the last minute, and whether it gets new jobs."""

    index: int
    uuid: str
    healthy: bool
    fault: str
    slower_by: float
    slower_by_jobs: int
    slower_together: int
    utilization: float | None
    memory_used_mib: float | None
    power_w: float | None
    temperature_c: float | None
    ecc_errors: int | None
    throttled_by: list[str]


class NodePoint(GpuPoint):
    """One GPU of a node over an interval."""

    name: str


class NodeGpus(TypedDict):
    """The GPUs of a node now and over the last 24 hours; `emulated`: the figures are made up."""

    emulated: bool
    gpus: list[GpuNow]
    course: list[NodePoint]


class JobEnergy(TypedDict):
    """Energy of the GPUs of a job's ended attempts; `source`: measured, or by the power of the GPU type."""

    wh: float | None
    source: str


class JobDetail(Job):
    """A job with its attempts and entity tag, as the route of one job returns it."""

    attempts: list[Attempt]
    energy: JobEnergy | None
    archived: bool
    etag: str


class Event(TypedDict):
    """Event in the history of a job."""

    id: int
    at: str
    kind: str
    attempt: int | None
    message: str
    actor: str | None


class TaskEstimate(TypedDict):
    """Duration of a task of an array, from those that have succeeded: the mean, and what four of five keep to."""

    seconds: float
    least_seconds: float
    most_seconds: float
    basis: str
    tasks: int


class Array(TypedDict):
    """Tasks of an array by state, how long one takes, and the GPU time that is left; None before a task has ended."""

    id: str
    name: str
    tasks: int
    waiting: int
    running: int
    succeeded: int
    failed: int
    estimate: TaskEstimate | None
    gpu_seconds_left: float | None
    summary: str


class GraphJob(TypedDict):
    """A job, or the tasks of an array that are in the graph; times that are still to come are medians of forecasts."""

    id: str
    name: str
    array: str | None
    tasks: int
    state: str
    after: list[str]
    starts_at: str | None
    ends_at: str | None
    critical: bool


class Graph(TypedDict):
    jobs: list[GraphJob]
    ends_at: str | None
    why_none: str
    complete: bool


class Metric(TypedDict):
    """Value of a named metric, and the step of its report."""

    step: int
    value: float


class CurvePoint(TypedDict):
    """A point of a job's progress; `metrics` are those that are new since the point before."""

    at: str
    step: int
    loss: float | None
    rate: float | None
    metrics: dict[str, Metric]


class Curve(TypedDict):
    """Progress of a job over all its attempts; `last`: each named metric as it was reported last."""

    points: list[CurvePoint]
    last: dict[str, Metric]
