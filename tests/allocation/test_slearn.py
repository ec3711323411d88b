"""Learning in space: small arrays, pilots, the array with the least left, and the tasks that wait for pilots."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocation.columns import InvalidProblem
from allocation.policies.slearn import slearn
from allocation.problem import Problem
from tests.hypothesis_examples import examples

HOUR = 3600.0


def served(problem, **parameters):
    """The jobs that run on a cluster of one GPU type."""
    return np.flatnonzero(slearn(problem, **parameters).assignment >= 0).tolist()


def tasks(gpus, *, hours, others_h=0.0, **columns):
    """Jobs of one GPU each on so many GPUs of one type."""
    hours = np.asarray(hours, dtype=float)
    others = np.broadcast_to(others_h, hours.shape) * HOUR
    rate = np.ones((len(hours), 1))
    return Problem.of(rate, [[1]], [gpus], remaining_steps=hours * HOUR, array_others_gpu_s=others, **columns)


def test_what_is_left_of_the_whole_array_decides_not_of_its_next_task():
    """A task of an hour, of which 98 wait, is after one of three hours that is the last of its array."""
    assert served(tasks(1, hours=[1, 3], others_h=[98, 0])) == [1]


def test_pilots_start_before_longer_and_shorter_arrays_and_the_tasks_that_wait_for_them_last():
    problem = tasks(
        2, hours=[5, 9, np.inf, 1], pilot=[False, True, False, False], unsampled=[False, False, False, True]
    )
    assert served(problem, pilots=1) == [0, 1]


def test_what_is_known_to_be_small_is_before_the_pilots():
    problem = tasks(1, hours=[0.2, 0.1], pilot=[False, True])
    assert served(problem) == [0]
    assert served(problem, small_gpu_s=600) == [1]


def test_pilots_have_their_part_of_the_gpus_and_the_rest_is_for_the_main_queue():
    """Of ten GPUs two are for pilots: one runs already, one more starts, and the third is after the main queue."""
    pilot = [True, True, True, *[False] * 8]
    problem = tasks(10, hours=[1, 1, 1, *[5] * 8], pilot=pilot, held=[0, *[-1] * 10], age_s=[9, 9, 8, *[0] * 8])
    assert served(problem) == [0, 1, *range(3, 11)]


def test_a_first_pilot_starts_though_its_gang_is_more_than_the_part():
    problem = Problem.of([[0, 1], [1, 0]], [[1, 4]], [4], remaining_steps=[HOUR, HOUR], pilot=[True, False])
    assert slearn(problem).assignment.tolist() == [1, -1]


def test_idle_gpus_go_to_tasks_whose_pilots_have_not_ended():
    assert served(tasks(2, hours=[np.inf, np.inf], unsampled=[True, True])) == [0, 1]


def test_no_task_is_stopped_for_a_pilot():
    assert served(tasks(1, hours=[99, 1], held=[0, -1], pilot=[False, True])) == [0]


def test_in_a_level_the_oldest_is_first():
    problem = tasks(1, hours=[3, 5, 50], age_s=[1, 2, 9])
    assert served(problem) == [0]
    assert served(problem, growth=10) == [1]


def test_a_single_job_is_first_only_if_that_is_asked_for():
    problem = tasks(1, hours=[9, 1], others_h=[0, 5])
    assert served(problem) == [1]
    assert served(problem, single_first=True) == [0]


def test_a_count_of_gpu_time_below_nothing_is_refused():
    with pytest.raises(InvalidProblem, match="array_others_gpu_s"):
        tasks(1, hours=[1], others_h=[-1])


@examples(60)
@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9), st.integers(0, 3)), min_size=1, max_size=12))
def test_it_serves_the_classes_one_after_the_other_and_the_main_queue_by_what_is_left(jobs):
    """Against the rule as a plain loop: tasks of one GPU, three of which fit."""
    hours, others_h, role = (np.array(column) for column in zip(*jobs, strict=True))
    problem = tasks(3, hours=hours, others_h=others_h, pilot=role == 1, unsampled=role == 2)
    pilots = 0
    keys = []
    for i in range(len(jobs)):
        if role[i] == 1 and pilots < 0.5 * 3:
            keys.append((1, 0, i))
            pilots += 1
        else:
            keys.append((2 if role[i] in {0, 3} else 3, hours[i] + others_h[i], i))
    expected = sorted(range(len(jobs)), key=keys.__getitem__)[:3]
    assert served(problem, pilots=0.5, small_gpu_s=0) == sorted(expected)
