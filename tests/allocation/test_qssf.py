"""Quasi-shortest-service-first: predicted GPU time decides who starts, in a queue for each team."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from allocation.policies.qssf import qssf
from allocation.problem import Problem
from tests.hypothesis_examples import examples


def rivals(decision):
    return {row: rival for row, rival in enumerate(decision.rival.tolist()) if rival >= 0}


def test_gpu_time_counts_not_time():
    """Three hours on one GPU are less than one hour on four."""
    problem = Problem.of([[1, 0], [0, 1]], [[1, 4]], [4], remaining_steps=[3 * 3600, 3600])
    assert qssf(problem).assignment.tolist() == [0, -1]


def test_a_running_job_stays_though_a_shorter_one_waits():
    problem = Problem.of([[1], [1]], [[1]], [1], remaining_steps=[1e6, 10], held=[0, -1])
    assert qssf(problem).assignment.tolist() == [0, -1]


def test_jobs_of_unknown_length_come_last_small_gangs_first_then_by_age():
    rate = [[1, 0], [0, 1], [1, 0], [1, 0]]
    problem = Problem.of(rate, [[1, 2]], [2], remaining_steps=[np.inf, np.inf, np.inf, 1e9], age_s=[1, 9, 5, 0])
    assert qssf(problem).assignment.tolist() == [-1, -1, 0, 0]


def test_the_first_job_that_does_not_fit_stops_the_queue_of_its_team_only():
    rate = [[1, 0], [0, 1], [1, 0], [1, 0]]
    problem = Problem.of(rate, [[1, 4]], [4], remaining_steps=[1, 10, 100, 200], team=[7, 7, 7, 8])
    decision = qssf(problem)
    assert decision.assignment.tolist() == [0, -1, -1, 0]
    assert rivals(decision) == {1: 0, 2: 1}


def test_an_elastic_job_gets_its_smallest_gang_on_the_fastest_type_left():
    usage = [[1, 2, 0, 0], [0, 0, 1, 2]]
    problem = Problem.of([[1, 2, 3, 6], [1, 2, 3, 6]], usage, [4, 1], remaining_steps=[10, 20])
    assert qssf(problem).assignment.tolist() == [2, 0]


@examples(60)
@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 4), st.integers(0, 2)), min_size=1, max_size=12))
def test_it_serves_each_team_as_a_queue_by_gpu_time_beside_the_others(jobs):
    """Against the rule as a plain loop: one type, gangs of one to four GPUs on a cluster of six."""
    capacity, left, stopped, expected = 6, 6, set(), {}
    for i in sorted(range(len(jobs)), key=lambda i: (jobs[i][0] * jobs[i][1], jobs[i][1])):
        _, gpus, team = jobs[i]
        expected[i] = gpus - 1 if gpus <= left and team not in stopped else -1
        left -= gpus if expected[i] >= 0 else 0
        stopped |= {team} if expected[i] < 0 else set()
    seconds, gpus, team = (np.array(column) for column in zip(*jobs, strict=True))
    rate = np.eye(4)[gpus - 1]
    problem = Problem.of(rate, [[1, 2, 3, 4]], [capacity], remaining_steps=seconds.astype(float), team=team)
    assert qssf(problem).assignment.tolist() == [expected[i] for i in range(len(jobs))]
