"""Shares on few types: each job keeps its throughput, no GPU is used longer, and fewer shares are positive."""

import numpy as np
import pytest
from hypothesis import given

from allocation.policies.max_min_fairness import max_min_fairness
from allocation.problem import Problem
from allocation.solvers.few_types import few_types
from tests.allocation.allocation_cases import clusters
from tests.hypothesis_examples import examples


def throughput(problem, shares):
    return (problem.rate * shares).sum(axis=1)


def gpu_time(problem, shares):
    return problem.usage @ shares.sum(axis=0)


@examples(60)
@given(clusters())
def test_jobs_keep_their_throughput_within_the_same_gpu_time(cluster):
    problem = cluster.problem
    before = max_min_fairness(problem).shares
    after = few_types(problem, before)
    assert (throughput(problem, after) >= throughput(problem, before) * (1 - 1e-6)).all()
    assert (gpu_time(problem, after) <= gpu_time(problem, before) + 1e-6).all()
    assert (after.sum(axis=1) <= 1 + 1e-6).all()
    assert (after >= 0).all()
    assert (after > 0).sum() <= (before > 0).sum()


def test_identical_jobs_run_on_one_type_each_in_place_of_all():
    jobs, types = 20, 3
    rates = np.tile([8.0, 22.0, 45.0], (jobs, 1))
    problem = Problem.of(rates, np.eye(types, dtype=int), [2, 2, 1], age_s=np.arange(jobs))
    before = max_min_fairness(problem).shares
    after = few_types(problem, before)
    assert (before > 1e-6).sum() == jobs * types
    assert (after > 0).sum() <= jobs + types
    assert throughput(problem, after) == pytest.approx(throughput(problem, before))


def test_the_oldest_of_identical_jobs_gets_the_fastest_type():
    problem = Problem.of([[1.0, 2.0]] * 6, [[1, 0], [0, 1]], [1, 1], age_s=[5, 9, 1, 3, 2, 4])
    after = few_types(problem, max_min_fairness(problem).shares)
    assert after[1].argmax() == 1
    assert after[1, 0] == 0
