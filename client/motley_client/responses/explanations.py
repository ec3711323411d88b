"""Why a job waits and which rates are assumed for it; where one could run that is only planned."""

from typing import Any, NotRequired, TypedDict

from motley_client.responses.forecasts import Interval, PlannedForecast
from motley_client.responses.jobs import Reason


class RateUsed(TypedDict):
    gpu_type: str
    gpus: int
    nodes: int
    rate: float | None
    """Steps/s; None, as limits and spread: assumed, as no rate of the job or its workload is known."""
    low: NotRequired[float | None]
    high: NotRequired[float | None]
    spread: NotRequired[float | None]
    source: str
    runs: NotRequired[int]
    relative: NotRequired[float]
    """Steps/s per GPU, as a multiple of those in the slowest configuration."""
    share: float | None


class Change(TypedDict):
    """A change with which the next round would start the job; `anew`: it must be submitted again with it."""

    kind: str
    detail: str
    changes: dict[str, Any]
    gpu_type: str
    gpus: int
    anew: bool
    for_staff: bool


class WouldStart(TypedDict):
    note: str
    options: list[Change]


class Remaining(TypedDict):
    """Running time that is left of a job: the mean, and what four of five such jobs keep to."""

    seconds: float
    least_seconds: float
    most_seconds: float
    basis: str
    jobs: int
    runs: bool
    detail: str


class PlacementOdds(TypedDict):
    """Odds of a running job where it is and on other nodes of its GPU type."""

    placed: dict[str, Any]
    elsewhere: list[dict[str, Any]]
    detail: str


class QueueOutlook(TypedDict):
    """Place of a waiting job in the queue, the GPUs that it may use, and when a start is expected."""

    place: int
    queue: int
    gpus: int
    held_gpus: int
    start: Interval
    made_at: str
    detail: str


class WakingNode(TypedDict):
    """Node that is being woken, and when it is expected to take jobs."""

    node: str
    gpu_type: str
    since: str
    expected_at: str


class Checkpoints(TypedDict):
    """What checkpoints and losses of nodes mean for the rest of a running job."""

    interval_s: float
    cost_s: float
    measured: bool
    restore_s: float
    at_stake_gpu_s: float
    lost_gpu_s: float | None
    in_time: float | None


class RestartCost(TypedDict):
    """What a restart costs a job, in seconds, and from what that is known."""

    seconds: float
    stop_s: float
    start_s: float
    declared_s: float
    source: str
    """`measured`, of its workload, or `declared`."""
    stops: int
    starts: int
    detail: str


class DeadlineOutlook(TypedDict):
    """A job's deadline, and the probability that it is done by then, from its forecast."""

    deadline: str
    in_time: float
    made_at: str
    passed: NotRequired[bool]
    """Whether it has passed, and the job is not done."""


class Explanation(TypedDict):
    """Why a job waits, how long it still runs, and the rates that the scheduler assumes for it."""

    state: str
    reason: str
    message: str
    reasons: list[Reason]
    outlook: NotRequired[QueueOutlook | None]
    deadline: NotRequired[DeadlineOutlook | None]
    waking: NotRequired[list[WakingNode]]
    remaining: NotRequired[Remaining | None]
    placement: NotRequired[PlacementOdds | None]
    checkpoints: NotRequired[Checkpoints | None]
    restart: NotRequired[RestartCost | None]
    rates_used: list[RateUsed]
    cpu_memory: str
    """Why it has its CPUs and memory; empty unless the round has chosen them."""
    measurement: NotRequired[str]
    """Why it measures its rate where it runs; empty if it does not."""
    others_wait: NotRequired[str]
    """How long others wait for the GPUs that it holds; empty: it holds none, nobody waits, or it is not known."""
    round: int | None
    would_start: WouldStart | None


class PlanOption(TypedDict):
    """Configuration (GPU type and count) in which a job could run."""

    gpu_type: str
    gpus: int
    replicas: int
    nodes: int
    rate: float | None
    source: str | None
    cost_per_hour: float
    run_seconds: float | None
    cost: float | None
    can_start_now: bool
    free_gpus: int
    reason: str
    preferred: bool


class CostOption(TypedDict):
    """Run time and cost of a job on one configuration: a GPU type and a number of GPUs."""

    gpu_type: str
    gpus: int
    run_seconds: float
    cost: float
    preferred: bool
    pareto_optimal: bool
    others_wait_h: float | None


class CostAndTime(TypedDict):
    """Run time and cost on each gang of each GPU type, the fastest first."""

    options: list[CostOption]
    unit: str
    """`price`, or `gpu_hours` if one of the GPU types has no price per hour."""
    note: str
    why_none: str
    """Why there are no options; empty if there are."""


class Plan(TypedDict):
    """Result of a dry run: the configurations in which the job could run."""

    valid: bool
    spec: dict[str, Any]
    options: list[PlanOption]
    note: str
    cost_and_time: NotRequired[CostAndTime]
    forecast: NotRequired[PlannedForecast | None]
