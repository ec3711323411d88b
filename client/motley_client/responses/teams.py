"""Teams with their members, shares, quotas and budgets."""

from typing import NotRequired, TypedDict


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
