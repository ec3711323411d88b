"""What jobs, teams and members used, and what it cost."""

from typing import TypedDict


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
