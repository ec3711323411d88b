"""What the table of policies says of each is what its decisions show: needs, elastic jobs, preemption."""

from typing import Any

import numpy as np
import pytest

from allocation.policies import REGISTRY, Need, Preempts
from allocation.problem import Problem

SEEDS = range(6)
CHANGED = {
    Need.RATES: ("rate",),
    Need.STEPS_LEFT: ("remaining_steps", "total_steps"),
    Need.PRICES: ("price_per_gpu_hour",),
    Need.DEADLINES: ("deadline_s",),
    Need.WEIGHTS: ("weight", "job_weight"),
    Need.ARRAYS: ("array_others_gpu_s",),
}
"""Columns that each need stands for."""


def columns(seed: int) -> dict[str, Any]:
    """Eight jobs of one or two GPUs, too many for two types of three GPUs."""
    rng, jobs = np.random.default_rng(seed), 8
    steps = rng.uniform(1e4, 1e6, jobs)
    return {
        "rate": np.repeat(rng.uniform(1, 10, (jobs, 2)), 2, axis=1) * np.tile([1, 1.8], 2),
        "usage": np.array([[1, 2, 0, 0], [0, 0, 1, 2]]),
        "capacity": np.array([3, 3]),
        "nodes": np.ones(4, int),
        "weight": rng.uniform(0.5, 2, jobs),
        "job_weight": rng.uniform(0.5, 2, jobs),
        "age_s": rng.permutation(jobs) * 600.0 + 60,
        "remaining_steps": steps,
        "total_steps": steps * 1.5,
        "deadline_s": rng.uniform(1e4, 1e5, jobs),
        "price_per_gpu_hour": np.array([3.0, 1.0]) if seed % 2 else np.array([1.0, 3.0]),
        "team": rng.integers(0, 3, jobs),
        "attained_gpu_s": rng.uniform(0, 1e5, jobs),
        "array_others_gpu_s": rng.uniform(1e3, 1e6, jobs),
    }


def decided(policy: str, given: dict[str, Any]) -> Any:
    decision = REGISTRY[policy].policy(Problem.of(**given))
    return decision.assignment if decision.shares is None else decision.shares


def depends_on(policy: str, need: Need) -> bool:
    """Whether other values of its columns ever lead to another decision."""
    for seed in SEEDS:
        given, others = columns(seed), columns(seed + 101)
        changed = given | {name: others[name] for name in CHANGED[need]}
        if not np.allclose(decided(policy, given), decided(policy, changed), atol=1e-4):
            return True
    return False


@pytest.mark.parametrize("policy", REGISTRY)
def test_a_policy_needs_what_its_decisions_depend_on(policy: str) -> None:
    assert {need for need in Need if depends_on(policy, need)} == set(REGISTRY[policy].needs)


@pytest.mark.parametrize("policy", REGISTRY)
def test_an_elastic_job_alone_grows_under_the_policies_that_size_it(policy: str) -> None:
    alone = {"rate": np.array([[1, 2.5, 8]]), "usage": np.array([[1, 2, 4]]), "capacity": np.array([4])}
    known = {"nodes": np.ones(3, int), "remaining_steps": np.array([1e6]), "total_steps": np.array([1e6])}
    choice = decided(policy, alone | known)
    largest = choice[0] == 2 if choice.ndim == 1 else choice[0, 2] > 0.99
    assert bool(largest) is REGISTRY[policy].elastic


@pytest.mark.parametrize("policy", REGISTRY)
def test_policies_of_shares_let_jobs_take_turns(policy: str) -> None:
    shares = REGISTRY[policy].policy(Problem.of(**columns(0))).shares
    assert (shares is not None) is (REGISTRY[policy].preempts is Preempts.IN_TURNS)


@pytest.mark.parametrize("policy", [name for name, known in REGISTRY.items() if known.preempts is Preempts.NEVER])
def test_a_running_job_keeps_its_gpus_under_policies_that_never_preempt(policy: str) -> None:
    held = np.array([0, 2, -1, -1, -1, -1, -1, -1])
    for seed in SEEDS:
        chosen = decided(policy, columns(seed) | {"held": held})
        assert chosen[:2].tolist() == [0, 2]
