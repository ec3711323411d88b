"""Queue policies: the order of jobs, and which of them are passed over."""

from importlib import import_module

import numpy as np
import pytest

from allocation.decision import Status
from allocation.policies.allox import allox
from allocation.policies.fifo import fifo
from allocation.policies.fifo_fastest import fifo_fastest
from allocation.policies.las import las
from allocation.policies.srtf import srtf
from allocation.problem import Problem

ALLOX = import_module("allocation.policies.allox")
"""The module: the package has the function of the same name."""


def rivals(decision):
    return {row: rival for row, rival in enumerate(decision.rival.tolist()) if rival >= 0}


def test_fifo_gives_the_oldest_job_the_roomiest_type_and_stops_at_the_first_that_fits_nowhere():
    usage = [[1, 4, 0, 0], [0, 0, 1, 4]]
    rate = [[0, 1, 0, 1], [9, 0, 1, 0], [0, 1, 0, 1], [1, 0, 1, 0]]
    decision = fifo(Problem.of(rate, usage, [4, 5], age_s=[30, 40, 20, 10]))
    assert decision.assignment.tolist() == [1, 2, 3, -1]
    decision = fifo(Problem.of(rate, usage, [4, 4], age_s=[30, 40, 20, 10]))
    assert decision.assignment.tolist() == [3, 0, -1, -1]


def test_fifo_says_which_job_stands_ahead():
    decision = fifo(Problem.of([[1], [1], [1]], [[1]], [1], age_s=[1, 3, 2]))
    assert rivals(decision) == {2: 1, 0: 2}


def test_fifo_leaves_a_running_job_where_it_is():
    decision = fifo(Problem.of([[1, 1], [1, 1]], np.eye(2), [1, 1], age_s=[9, 1], held=[-1, 1]))
    assert decision.assignment.tolist() == [0, 1]


def test_fifo_fastest_gives_the_oldest_the_best_and_moves_the_job_that_runs_there():
    problem = Problem.of([[3, 1], [9, 8]], np.eye(2), [1, 1], age_s=[9, 1], held=[-1, 0])
    assert fifo_fastest(problem).assignment.tolist() == [0, 1]
    assert fifo_fastest(problem.subset(np.array([1, 0]))).assignment.tolist() == [1, 0]


def test_fifo_fastest_lets_others_have_gpus_that_the_first_waiting_job_cannot_use():
    problem = Problem.of([[3, 1], [9, 0], [5, 4]], np.eye(2), [1, 1], age_s=[9, 5, 1])
    assert fifo_fastest(problem).assignment.tolist() == [0, -1, 1]


def test_fifo_fastest_keeps_gpus_idle_that_are_too_few_for_the_first_waiting_job():
    problem = Problem.of([[3, 0], [0, 9], [5, 0]], [[1, 2]], [2], age_s=[9, 5, 1])
    assert fifo_fastest(problem).assignment.tolist() == [0, -1, -1]


def test_srtf_runs_what_is_done_soonest_and_what_has_no_length_last():
    remaining = [np.inf, 900, 100, 50]
    problem = Problem.of([[1], [10], [1], [1]], [[1]], [2], remaining_steps=remaining, age_s=[9, 3, 2, 1])
    assert srtf(problem).assignment.tolist() == [-1, 0, -1, 0]


def test_srtf_passes_over_a_gang_that_does_not_fit():
    problem = Problem.of([[0, 1], [1, 0]], [[1, 4]], [4], remaining_steps=[20, 10])
    assert srtf(problem).assignment.tolist() == [-1, 0]


def test_las_prefers_the_lower_queue_and_in_a_queue_the_running_job():
    attained = [100, 4000, 50, 10]
    problem = Problem.of(
        np.ones((4, 1)), [[1]], [2], attained_gpu_s=attained, age_s=[5, 9000, 4, 3], held=[-1, 0, -1, 0]
    )
    assert las(problem).assignment.tolist() == [0, -1, -1, 0]


def test_las_promotes_a_job_that_waited_long():
    """The first is in the second queue by its service; it waited nine times as long as it ran."""
    attained, age_s = [4000, 3300], [4000 * 10, 3400]
    problem = Problem.of(np.ones((2, 1)), [[1]], [1], attained_gpu_s=attained, age_s=age_s, held=[-1, 0])
    assert las(problem).assignment.tolist() == [0, -1]
    assert las(problem, promote=0).assignment.tolist() == [-1, 0]


def test_las_lets_a_promoted_job_run_until_it_has_caught_up():
    ran_s, rounds = np.array([4000.0, 3300.0]), []
    for number in range(12):
        age_s = np.array([40_000.0, 3400.0]) + 360 * number
        held = [0 if row == (rounds or [1])[-1] else -1 for row in (0, 1)]
        decision = las(Problem.of(np.ones((2, 1)), [[1]], [1], attained_gpu_s=ran_s, age_s=age_s, held=held))
        rounds.append(int(decision.assignment.argmax()))
        ran_s[rounds[-1]] += 360
    assert rounds == sorted(rounds), "they take turns"


def test_allox_lets_a_short_job_go_first_and_sends_one_that_gains_little_to_the_slow_gpu():
    """Jobs of 100 s and 10 s on the fast GPU, 1000 s and 11 s on the slow one: the short one loses a second there."""
    problem = Problem.of([[10, 1], [10, 9]], np.eye(2), [1, 1], remaining_steps=[1000, 100], age_s=[1, 1])
    assert allox(problem).assignment.tolist() == [0, 1]
    one = Problem.of([[10], [10]], [[1]], [1], remaining_steps=[1000, 100], age_s=[2, 1])
    assert allox(one).assignment.tolist() == [-1, 0]


def test_allox_would_rather_wait_for_a_fast_gpu_than_crawl():
    problem = Problem.of([[10, 0.1], [10, 0.1]], np.eye(2), [1, 1], remaining_steps=[100, 100], age_s=[2, 1])
    assert sorted(allox(problem).assignment.tolist()) == [-1, 0]


def test_allox_matches_only_the_oldest_when_told():
    problem = Problem.of([[1], [1], [1]], [[1]], [1], remaining_steps=[100, 10, 1], age_s=[3, 2, 1])
    assert allox(problem).assignment.tolist() == [-1, -1, 0]
    assert allox(problem, oldest=0.4).assignment.tolist() == [0, -1, -1]


@pytest.mark.parametrize("jobs", [3, 10, 50])
def test_allox_starts_the_oldest_of_equal_jobs_first(jobs):
    ages = np.roll(np.arange(jobs, 0, -1), 1)
    problem = Problem.of(np.ones((jobs, 1)), [[1]], [2], remaining_steps=np.full(jobs, 600.0), age_s=ages)
    assert np.flatnonzero(allox(problem).assignment >= 0).tolist() == [1, 2]


def test_allox_keeps_the_oldest_of_a_queue_that_is_too_long_to_match(monkeypatch):
    """Of five jobs two are matched; the other GPUs go to the next oldest."""
    monkeypatch.setattr(ALLOX, "MOST_CELLS", 6)
    equal = {"remaining_steps": np.full(5, 600.0), "age_s": [5, 4, 3, 2, 1]}
    assert np.flatnonzero(allox(Problem.of(np.ones((5, 1)), [[1]], [1], **equal)).assignment >= 0).tolist() == [0]
    assert np.flatnonzero(allox(Problem.of(np.ones((5, 1)), [[1]], [3], **equal)).assignment >= 0).tolist() == [0, 1, 2]


def test_allox_matches_as_many_jobs_as_its_time_limit_allows(monkeypatch):
    """Of 60 jobs the shortest, which is the youngest, starts; in a time for ten of them, the shortest of the oldest."""
    monkeypatch.setattr(ALLOX, "STEPS_PER_S", 1e3)
    queue = {"remaining_steps": np.arange(60, 0, -1) * 600.0, "age_s": np.arange(60, 0, -1)}
    found = [allox(Problem.of(np.ones((60, 1)), [[1]], [1], **queue, solve_limit_s=s)) for s in (np.inf, 1.0)]
    assert [np.flatnonzero(decision.assignment >= 0).tolist() for decision in found] == [[59], [9]]


def test_allox_says_so_where_its_time_limit_made_the_matching_smaller(monkeypatch):
    """A replay has the limit again only then."""
    monkeypatch.setattr(ALLOX, "STEPS_PER_S", 1e3)
    queue = {"remaining_steps": np.full(60, 600.0), "age_s": np.arange(60, 0, -1)}
    found = [allox(Problem.of(np.ones((60, 1)), [[1]], [1], **queue, solve_limit_s=s)) for s in (np.inf, 1e6, 1.0)]
    assert [decision.status for decision in found] == [Status.RULE, Status.RULE, Status.LIMIT]
    said = "In the time limit the oldest 10 of 60 jobs that could start were matched, 10 to a GPU."
    assert [decision.message for decision in found] == ["", "", said]


@pytest.mark.parametrize("oldest", [0.1, 1])
def test_allox_leaves_no_gpu_idle_behind_a_long_queue_that_cannot_use_it(monkeypatch, oldest):
    """The first type is taken; of the others that would run there, too, two start on the second, the oldest first."""
    monkeypatch.setattr(ALLOX, "MOST_CELLS", 16)
    rate = [[1, 0]] + [[1, 0]] * 40 + [[3, 1]] * 20
    problem = Problem.of(
        rate, np.eye(2), [1, 2], remaining_steps=np.full(61, 600.0), age_s=np.arange(61, 0, -1), held=[0] + [-1] * 60
    )
    assert np.flatnonzero(allox(problem, oldest=oldest).assignment == 1).tolist() == [41, 42]


def test_allox_starts_a_gang_when_its_gpus_are_free():
    problem = Problem.of([[0, 4], [1, 0]], [[1, 4]], [4], remaining_steps=[40, 400], age_s=[2, 1])
    assert allox(problem).assignment.tolist() == [1, -1]


@pytest.mark.parametrize("policy", [fifo_fastest, srtf, las])
def test_no_job_takes_the_gpus_of_a_locked_one(policy):
    problem = Problem.of(
        [[1], [1]], [[1]], [1], age_s=[9, 1], held=[-1, 0], locked=[False, True], remaining_steps=[1, 9]
    )
    assert policy(problem).assignment.tolist() == [-1, 0]
