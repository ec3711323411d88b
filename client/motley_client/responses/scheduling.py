"""Rounds and their decisions, policies and their effects, runs of the policy lab."""

from typing import Any, NotRequired, TypedDict

from motley_client.responses.jobs import Reason


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
    only_teams_of: NotRequired[str]
    """User whose teams' jobs alone were simulated; empty: all jobs were."""


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
