"""A round decided in parts: what they share out fits together, and parts that cannot be are refused."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocation.decision import Status
from allocation.policies import POLICIES
from allocation.policies.fifo import fifo
from allocation.policies.max_min_fairness import max_min_fairness
from allocation.policies.max_sum_throughput import max_sum_throughput
from allocation.problem import Problem
from simulation.rules.pop import (
    NotDivisible,
    decide_in_parts,
    in_parts,
    most_parts,
    shares_out,
    split_capacity,
    split_jobs,
)
from tests.allocation.allocation_cases import clusters
from tests.allocation.set_clock import set_clock


def granular(jobs=60, capacity=(26, 17), **columns):
    """Jobs that all differ, of 1 or 2 GPUs of two types."""
    rng = np.random.default_rng(2)
    usage = np.kron(np.eye(2, dtype=int), [1, 2])
    gang = rng.integers(2, size=jobs)
    rate = rng.uniform(1, 3, (jobs, 4)) * (np.arange(4) % 2 == gang[:, None])
    return Problem.of(rate, usage, capacity, **columns)


@given(clusters(), st.integers(1, 8), st.integers(0, 9))
def test_what_the_parts_share_out_fits_the_cluster(case, parts, seed):
    problem = case.problem
    X = in_parts(max_min_fairness, parts, together=min, seed=seed)(problem).shares
    assert (problem.usage @ X.sum(axis=0) <= problem.capacity * (1 + 1e-6)).all()
    assert X.sum(axis=1).max() <= 1 + 1e-6
    assert not X[problem.rate == 0].any()


@pytest.mark.parametrize("policy", [max_min_fairness, max_sum_throughput])
def test_one_part_is_the_policy_itself(policy):
    whole, parted = policy(granular()), decide_in_parts(granular(), policy, parts=1)
    assert np.array_equal(whole.shares, parted.shares)
    assert (whole.objective, whole.bound, whole.status) == (parted.objective, parted.bound, parted.status)


@pytest.mark.parametrize(("policy", "together"), [(max_min_fairness, min), (max_sum_throughput, sum)])
def test_parts_are_nearly_as_good_as_the_whole_and_never_better(policy, together):
    whole = policy(granular()).objective
    parted = decide_in_parts(granular(), policy, parts=4, together=together)
    assert 0.7 * whole < parted.objective <= whole * (1 + 1e-6)
    assert (parted.status, parted.bound) == (Status.RULE, np.inf)


def test_the_objective_is_that_of_the_shares_put_together():
    problem = granular()
    parted = decide_in_parts(problem, max_sum_throughput, parts=3)
    assert parted.objective == pytest.approx((problem.weight[:, None] * problem.rate * parted.shares).sum())


@given(st.lists(st.integers(0, 100), min_size=1, max_size=5), st.integers(1, 20))
def test_capacity_is_split_into_whole_gpus_as_equal_as_they_come(capacity, parts):
    split = split_capacity(np.array(capacity), parts)
    assert (split.dtype.kind, split.sum(axis=0).tolist()) == ("i", capacity)
    assert (np.ptp(split, axis=0) <= 1).all()
    assert np.ptp(split.sum(axis=1)) <= 1


def test_every_job_is_in_one_part_and_all_parts_ask_for_about_as_much():
    problem = granular()
    rows = split_jobs(problem, 7, np.random.default_rng(0))
    assert sorted(np.concatenate(rows).tolist()) == list(range(60))
    assert np.ptp([problem.base_gpus[part].sum() for part in rows]) <= 2


def test_another_seed_is_another_split():
    one, same, other = (decide_in_parts(granular(), max_min_fairness, parts=4, seed=seed).shares for seed in (1, 1, 2))
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)


@pytest.mark.parametrize(
    ("problem", "parts", "words"),
    [
        (granular(jobs=3), 4, "3 jobs cannot be split into 4 parts"),
        (granular(), 0, "60 jobs cannot be split into 0 parts"),
        (granular(), 14, "too few GPUs for the gang of some job; use at most 13 parts"),
    ],
)
def test_more_parts_than_jobs_or_gpus_are_refused(problem, parts, words):
    with pytest.raises(NotDivisible, match=words):
        decide_in_parts(problem, max_min_fairness, parts=parts)


def test_where_jobs_and_gpus_do_not_suffice_there_are_fewer_parts():
    assert (most_parts(granular()), most_parts(granular(jobs=3))) == (13, 3)
    assert in_parts(max_min_fairness, 100)(granular()).shares.any()


def test_what_a_policy_picks_is_not_put_together():
    with pytest.raises(NotDivisible, match="only shares of time"):
        decide_in_parts(granular(), fifo, parts=2)


def test_a_policy_tells_by_its_answer_whether_it_shares_out():
    assert {name for name, policy in POLICIES.items() if not shares_out(policy)} == {
        *("motley", "motley_static", "sia", "hadar", "allox", "srtf", "qssf", "slearn", "las", "fifo", "fifo_fastest")
    }


def test_each_part_has_its_part_of_the_time_that_is_left(monkeypatch):
    set_clock(monkeypatch, step_s=1)
    seen = []

    def watched(problem):
        seen.append(problem.solve_limit_s)
        return max_min_fairness(Problem.of(problem.rate, problem.usage, problem.capacity))

    decide_in_parts(granular(solve_limit_s=13), watched, parts=3)
    assert seen[0] == 4
    assert all(0 < later <= 13 for later in seen)
