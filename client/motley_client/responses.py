"""Types of the service's JSON responses. Fields that a newer service adds are kept."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NotRequired, TypedDict


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


class Scope(StrEnum):
    READ = "read"
    SUBMIT = "submit"
    ADMIN = "admin"


# -- jobs --------------------------------------------------------------------------------------------------------


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


class JobEnergy(TypedDict):
    """Energy of the GPUs of a job's ended attempts; `source`: measured, or by the power of the GPU type."""

    wh: float | None
    source: str


class Interval(TypedDict):
    """Moments before which an event comes with 10, 50 and 90 %; None: it is more than three days away."""

    low: str | None
    median: str | None
    high: str | None
    note: NotRequired[str]
    """`later than foreseen`, or empty."""


class EmptyForecast(Interval):
    """When a node is empty, from the forecasts of the ends of its jobs."""

    made_at: str


class QueueForecast(TypedDict):
    """When a job starts, None if it holds GPUs, and when it ends; its place among the jobs that wait."""

    made_at: str
    start: Interval | None
    finish: Interval
    gpu_type: str
    type_part: float
    place: int
    queue: int
    in_time: NotRequired[float | None]
    """Probability of being done by its deadline."""


class JobForecast(TypedDict):
    """The forecast of a job, or why there is none."""

    forecast: QueueForecast | None
    why_none: str


class PlannedForecast(JobForecast):
    """The forecast of a job that has not been submitted, and what it would cost others."""

    others_wait_h: float | None
    promise: str


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
    """How long others wait for the GPUs that it holds; empty: it holds none, or it is not known."""
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


@dataclass(frozen=True)
class LogChunk:
    """Bytes of a log; the next chunk begins at `next_offset`. `complete`: the attempt has ended and this is its end.

    `retry_after_s`: when to ask again, if many follow logs. `size`: bytes of the log now; -1: not known.
    """

    data: bytes
    next_offset: int
    complete: bool
    retry_after_s: int = 0
    size: int = -1


class LogPiece(TypedDict):
    text: str
    style: str
    """Words such as `in-red`, `on-bright-blue`, `bold`; empty: plain."""


class LogLine(TypedDict):
    """A line of a merged log."""

    at: str | None
    """When it was received; None: not known."""
    rank: int
    stream: str
    pieces: list[LogPiece]


class MergedLog(TypedDict):
    """Lines of both streams and all ranks by time; `next`: where the next part begins; `more`: there is one now.

    `end`: up to where the log reached, in a part that did not begin at a cursor.
    """

    attempt: int
    lines: list[LogLine]
    unfinished: list[LogLine]
    next: str
    end: str
    more: bool
    complete: bool


# -- files of a job ----------------------------------------------------------------------------------------------


class JobFile(TypedDict):
    name: str
    kind: str
    """`folder`, `file`, or `other`: a link or a device, which is not followed."""
    size: int
    modified_at: str


class ReceiptLine(TypedDict):
    gpu_type: str
    attempts: int
    gpu_hours: float
    price_per_hour: float | None
    cost: float | None


class OtherGpus(TypedDict):
    """Time and cost of the whole job on other GPUs; `cheaper` is a part of the cost, negative: dearer."""

    gpu_type: str
    gpus: int
    nodes: int
    rate: float
    runs: int
    run_s: float
    cost: float
    later_s: float
    cheaper: float
    pareto_optimal: bool
    words: str


class Advice(TypedDict):
    """Which GPUs a job should have requested, by measured rates; `unit` is that of costs."""

    sentence: str
    own_run_s: float
    own_cost: float
    unit: str
    others: list[OtherGpus]


class Receipt(TypedDict):
    """GPU-hours, cost, energy and CO2 of a job; None: not known, or not configured."""

    complete: bool
    lines: list[ReceiptLine]
    gpu_hours: float
    lost_gpu_hours: float
    cost: float | None
    unpriced: list[str]
    currency: str
    energy_kwh: float | None
    energy_source: str
    co2_g: float | None
    advice: Advice


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


class SavedCheckpoint(TypedDict):
    name: str
    """Of the file or folder; empty: it is not kept, or an archive of all."""
    kept: bool
    step: int | None
    made_at: str
    size: int | None
    """In bytes; None: it is not kept, or has too many files to be measured."""
    took_s: float | None
    attempt: int | None
    loss: float | None


class ContinuedBy(TypedDict):
    """A job that began with a checkpoint of this one."""

    id: str
    name: str
    continues_from: str
    continues_step: int | None


class SavedCheckpoints(TypedDict):
    checkpoints: list[SavedCheckpoint]
    continued_by: list[ContinuedBy]


class JobFolder(TypedDict):
    path: str
    files: list[JobFile]
    complete: bool
    """False: the folder has more names than are listed."""


# -- the cluster -------------------------------------------------------------------------------------------------


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


# -- scheduling --------------------------------------------------------------------------------------------------


class Share(TypedDict):
    """Fractions of the cluster's work over a window that the team was entitled to and received, and its backlog."""

    window_seconds: float
    entitled: float
    delivered: float
    backlog_gpu_hours: float


class Budget(TypedDict):
    """Budget of a team in the period that goes on, in reference GPU-hours."""

    kind: str
    period: str
    gpu_hours: float
    used_gpu_hours: float
    began_at: str
    resets_at: str
    is_used_up: bool
    expected_gpu_hours: float | None
    used_up_at: str | None
    weight_part: float


class Quota(TypedDict):
    """Quota of a team on a GPU type, its use now, and the waiting a day that one more GPU would save."""

    gpu_type: str
    gpus: int
    borrowing_limit: int | None
    lending_limit: int | None
    used: int
    borrowed: int
    borrowed_by_others: int
    mean_gpus: float | None
    waiting_hours_per_day: float | None


class Team(TypedDict):
    name: str
    weight: float
    max_job_weight: float
    max_gpus: int | None
    max_gpus_per_member: int | None
    max_code_mib: int | None
    max_files_gib: int | None
    idle_gpus_limit_min: NotRequired[int | None]
    files_bytes: int
    members: list[str]
    leads: NotRequired[list[str]]
    retired_at: NotRequired[str | None]
    gpus_in_use: int
    share: Share
    quotas: NotRequired[list[Quota]]
    budget: NotRequired[Budget | None]


class Member(TypedDict):
    """Member of a team; `gpu_hours` are of the last seven days."""

    username: str
    is_member: bool
    is_lead: bool
    invited: bool
    gpus: int
    gpu_hours: float
    running: int
    waiting: int


class Invitation(TypedDict):
    """An invitation: the only response that contains its link, which is good for seven days."""

    username: str
    link: str
    mailed: bool


class Usage(TypedDict):
    """Usage of a team on a GPU type in one day, or in the month that begins with it."""

    period: str
    team: str
    gpu_type: str
    gpu_hours: float
    work_gpu_hours: float
    cost: float
    energy_kwh: float | None
    energy_source: str


class UsageReport(TypedDict):
    since: str
    until: str
    by: str
    rows: list[Usage]


class ReportedType(TypedDict):
    gpu_type: str
    gpu_hours: float
    work_gpu_hours: float
    cost: float


class ReportedMember(TypedDict):
    username: str
    gpu_hours: float
    work_gpu_hours: float
    part: float


class ReportedJobs(TypedDict):
    """Jobs that ended in the month; times in seconds from submission to the first start."""

    succeeded: int
    failed: int
    cancelled: int
    timed_out: int
    started: int
    wait_s: float | None
    wait_p95_s: float | None
    restarts: int


class TeamReport(TypedDict):
    """What a team had in a month; null: not known."""

    team: str
    gpu_hours: float
    work_gpu_hours: float
    types: list[ReportedType]
    cost: float | None
    energy_kwh: float | None
    energy_source: str
    co2_g: float | None
    jobs: ReportedJobs | None
    lost_gpu_hours: float | None
    failed_gpu_hours: float | None
    idle_gpu_hours: float | None
    members: list[ReportedMember]


class MonthlyReport(TypedDict):
    month: str
    known_since: str
    currency: str
    teams: list[TeamReport]


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


class LabRun(TypedDict):
    """A run of the policy lab; lists leave out its result."""

    id: int
    owner: str
    days: int | None
    trace_format: str
    policies: list[str]
    round_length_s: float | None
    nodes: dict[str, int]
    team_weights: dict[str, float]
    quotas: list[dict[str, Any]]
    budgets: list[dict[str, Any]]
    state: str
    done: int
    total: int
    message: str
    created_at: str
    finished_at: str | None
    result: NotRequired[dict[str, Any] | None]


class SimulatedSaving(TypedDict):
    """What a run of the policy lab found that changed only one node."""

    lab_run: int
    saved_h: float


class NodeSaving(TypedDict):
    """Waiting that one more node of a GPU type would save, and one less cost, in hours a week."""

    gpu_type: str
    gpus: int
    node_gpus: int
    price: float
    """Hours that others waited per GPU-hour."""
    saved_h: float
    cost_h: float | None
    simulated_more: SimulatedSaving | None
    simulated_less: SimulatedSaving | None
    words: str


class NodeSavings(TypedDict):
    since: str | None
    types: list[NodeSaving]
    why_none: str


class NotificationTarget(TypedDict):
    """Address to which notifications go, without what is secret in it."""

    id: int
    kind: str
    address: str
    team: str | None
    user: str | None
    events: list[str]
    created_at: str
    sent_at: str | None
    failures: int
    retry_at: str | None


class NewNotificationTarget(NotificationTarget):
    """A new target: the only response that contains the key that signs its messages; empty unless it is a webhook."""

    key: str


class Notification(TypedDict):
    """One notification to one target; `state` is pending, sent or dead, which is given up."""

    id: str
    target: int
    event: str
    facts: dict[str, Any]
    state: str
    created_at: str
    due_at: str
    tries: int
    sent_at: str | None
    error: str


class Secret(TypedDict):
    """Name of a secret of a team, or of a user."""

    id: int
    name: str
    team: str | None
    user: str | None
    changed_at: str
    changed_by: str | None


class DueTime(TypedDict):
    """A due time of a recurring job, and what became of it; `job` and `state` only if it was submitted."""

    due_at: str
    at: str
    outcome: str
    job: str | None
    state: str
    message: str


class RecurringJob(TypedDict):
    """A spec with a schedule, in lists; `next_due_at` is null while it is paused."""

    id: int
    name: str
    team: str
    owner: str
    schedule: str
    timezone: str
    concurrency: str
    missed: str
    spec: dict[str, Any]
    next_due_at: str | None
    paused_at: str | None
    paused_because: str
    created_at: str
    changed_at: str
    last_run: DueTime | None


class RecurringJobDetail(RecurringJob):
    """One recurring job; send its `etag` as `if_match` with a change."""

    etag: str


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


class StartStage(TypedDict):
    """A stage of a team's starts, of first ones or of restarts."""

    stage: str
    restart: bool
    starts: int
    p50_seconds: float
    p90_seconds: float


class TeamStarts(TypedDict):
    """Where the starts of a team's attempts went that ended in the window."""

    window_seconds: int
    stages: list[StartStage]


class RecipeParameter(TypedDict):
    """A parameter of a recipe; its value must be given if `default` is null."""

    name: str
    type: str
    default: str | float | bool | None
    description: str
    choices: list[str | float | bool]


class LastJob(TypedDict):
    """The newest job of a recipe that has started; `rate` in steps/s, as measured."""

    id: str
    state: str
    gpu_type: str
    gpu_count: int
    rate: float | None
    started_at: str | None


class Recipe(TypedDict):
    """A job file of a team with parameters, in its latest version, in lists."""

    id: int
    name: str
    team: str
    description: str
    editors: str
    version: int
    parameters: list[RecipeParameter]
    spec: dict[str, Any]
    changed_by: str | None
    created_at: str
    changed_at: str
    submissions: int
    last_job: LastJob | None


class RecipeDetail(Recipe):
    """One recipe; send its `etag` as `if_match` with a change."""

    etag: str


class RecipeVersion(TypedDict):
    """A version of a recipe."""

    version: int
    author: str | None
    created_at: str
    parameters: list[RecipeParameter]
    spec: dict[str, Any]


class SweepMetric(TypedDict):
    """The metric that trials are compared by; `goal` is minimize or maximize."""

    name: str
    goal: str


class Trial(TypedDict):
    """A trial of a sweep; `values` are those of the metric at the rungs or marks that it has reached.

    In a population: `source` is the trial with whose weights it began, at `source_step`, and `changes` has the values
    of that one where they differ; `replaces` is the trial whose place it took.
    """

    number: int
    job: str
    params: dict[str, Any]
    state: str
    value: float | None
    values: list[float]
    rung: int
    source: int | None
    source_step: int | None
    replaces: int | None
    changes: dict[str, Any]
    message: str
    created_at: str
    ended_at: str | None


class Sweep(TypedDict):
    """A search for good hyper-parameters; `trials` counts them by state."""

    id: int
    name: str
    team: str
    owner: str
    state: str
    message: str
    method: str
    metric: SweepMetric
    parameters: dict[str, Any]
    early_terminate: dict[str, Any] | None
    population: dict[str, Any] | None
    rungs: list[int]
    marks: list[int]
    run_cap: int
    at_a_time: int
    max_failed: int
    seed: int
    spec: dict[str, Any]
    created_at: str
    ended_at: str | None
    trials: dict[str, int]
    best: Trial | None


class SweepDetail(Sweep):
    """A sweep with its cost; `ends_at` is at the pace so far."""

    gpu_hours: float
    saved_gpu_hours: float | None
    ends_at: str | None


class CodeArchive(TypedDict):
    """Archive of code; `stored` is false when its file was deleted because no job had used it lately."""

    digest: str
    size_bytes: int
    unpacked_bytes: int
    files: int
    commit: str
    branch: str
    stored: bool
    uploaded_by: str | None
    created_at: str
    used_at: str


class CodeArchiveDetail(CodeArchive):
    diff: str


class Decision(TypedDict):
    """Decision of a round on one job; without `gpu_type` the job waits."""

    job: str
    gpu_type: str | None
    gpus: int
    share: float | None
    reasons: list[Reason]


class Round(TypedDict):
    number: int
    started_at: str
    ended_at: str | None
    result: str
    message: str
    policy: str
    parameters: dict[str, Any]
    jobs: int
    gpus: int
    objective: float | None
    bound: float | None
    gap: float | None
    solve_seconds: float | None
    seconds: dict[str, float]
    starts: int
    stops: int
    moves: int
    status: str
    prices: dict[str, float]


class TypeConsumption(TypedDict):
    """Energy of the GPUs of a type that jobs held from a round to the next."""

    gpu_type: str
    wh: float | None
    energy_source: str


class RoundDetail(Round):
    decisions: list[Decision]
    energy: list[TypeConsumption]


class Parameter(TypedDict):
    """Parameter of a policy. `least` and `most` are None unless it is a number, `names` unless it is a choice."""

    kind: str
    default: float | str
    least: float | None
    most: float | None
    names: list[str] | None
    meaning: str


class Policy(TypedDict):
    """Scheduling policy that can be chosen."""

    name: str
    summary: str
    aims_at: str
    preempts: str
    elastic: bool
    needs: list[str]
    choose_when: str
    sources: list[str]
    parameters: dict[str, Parameter]
    current: bool


class ChosenPolicy(TypedDict):
    """Settings of the chosen policy; `id` and `created_at` are None for the defaults before any choice."""

    id: int | None
    policy: str
    parameters: dict[str, Any]
    round_length_s: float
    min_run_s: float
    solve_limit_part: float
    cpu_memory: str
    note: str
    created_at: str | None
    created_by: str | None


class Fate(TypedDict):
    """What a round does with a job: stop, resize, move, start, keep or wait; and the GPUs that it then has."""

    deed: str
    gpu_type: str | None
    gpus: int


class JobPreview(TypedDict):
    job: str
    name: str | None
    team: str | None
    present: Fate
    chosen: Fate


class PolicyPreview(TypedDict):
    """The next round under a policy (`chosen`) beside the next round under the present one."""

    jobs: int
    present: dict[str, int]
    chosen: dict[str, int]
    differing: int
    listed: list[JobPreview]


class LabPolicyPreview(PolicyPreview):
    cautions: list[str]
    predicted: dict[str, Any]


class PolicyEffect(TypedDict):
    """A measure since the policy was chosen, and the band in which it was expected."""

    measure: str
    meaning: str
    state: str
    value: float | None
    jobs: int | None
    predicted: float
    low: float
    high: float


class PolicyGuard(TypedDict):
    """Effects of the current policy compared with what the policy lab predicted."""

    setting: int | None
    lab_run: int | None
    state: str
    message: str
    recommends_undo: bool
    undo_by_itself: bool
    until: str | None
    judged_at: str | None
    effects: list[PolicyEffect]


class AppliedPolicy(TypedDict):
    setting: ChosenPolicy
    cautions: list[str]
    guard: PolicyGuard


# -- account -----------------------------------------------------------------------------------------------------


class Token(TypedDict):
    id: int
    name: str
    scope: str
    prefix: str
    created_at: str
    expires_at: str | None
    used_at: str | None
    revoked_at: str | None


class NewToken(Token):
    """A new token: the only response that contains its text."""

    token: str


class Me(TypedDict):
    """The user of the request. `scope` and `token` (its prefix) are None in a browser session."""

    username: str
    is_staff: bool
    teams: list[str]
    default_team: str | None
    scope: str | None
    token: str | None
