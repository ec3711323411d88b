"""Searches for hyperparameters, and their trials."""

from typing import Any, TypedDict


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
    """A search for good hyperparameters; `trials` counts them by state."""

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
