"""Task sampling: how many tasks of an array are pilots, which, and what they tell of the others."""

from math import exp, inf, log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from estimation.durations import Sums
from estimation.estimate import Estimate
from estimation.scaling import Source
from estimation.task_sampling import ArrayTasks, TaskSample
from tests.hypothesis_examples import examples


def sample(tasks: int, *seconds: float, running: int = 0) -> TaskSample:
    ended = Sums()
    for one in seconds:
        ended = ended.with_one(one, 1.0)
    return TaskSample(tasks, running, ended)


@pytest.mark.parametrize(("tasks", "pilots"), [(1, 0), (2, 0), (3, 1), (33, 1), (34, 2), (100, 3), (1000, 30)])
def test_three_in_a_hundred_tasks_are_pilots_and_none_of_a_small_array(tasks: int, pilots: int) -> None:
    assert sample(tasks).pilots == pilots


def test_where_durations_vary_there_are_more_pilots_and_where_they_are_alike_fewer() -> None:
    alike, varied = sample(1000, *[100] * 30), sample(1000, *[10, 1000] * 15)
    assert (alike.pilots, sample(1000).pilots, varied.pilots) == (10, 30, 50)


def test_an_array_is_sampled_once_four_fifths_of_its_pilots_have_ended() -> None:
    assert not sample(334, *[100] * 3, running=8).is_sampled
    assert sample(334, *[100] * 4, running=7).is_sampled
    assert not sample(2, 100).is_sampled


def test_pilots_that_run_are_not_drawn_again_and_those_that_failed_are() -> None:
    assert sample(100, running=2).pilots_to_start == 1
    assert sample(100).pilots_to_start == 3
    assert sample(100, 50, 60, 70).pilots_to_start == 0


def test_the_estimate_is_the_mean_of_the_tasks_that_ended() -> None:
    assert sample(100).estimate() is None
    found = sample(100, 50, 70).estimate()
    assert found is not None
    assert (found.mean, found.source, found.n) == (60, Source.SAMPLED, 2)


@pytest.mark.parametrize("history_s", [6.0, 6e5])
def test_history_counts_as_much_whether_it_is_longer_or_shorter(history_s: float) -> None:
    """On seconds, a history of seconds would be certain beside a sample of hours, and the estimate its mean."""
    tasks, history = sample(100, 1900, 1900), Estimate(history_s, 1.0, Source.SIMILAR, 9)
    found = tasks.estimate(history)
    assert found is not None
    weight = 2 / tasks.spread**2
    expected = (weight * log(1900) + log(history_s)) / (weight + 1)
    assert found.mean == pytest.approx(exp(expected))
    assert abs(log(found.mean / 1900)) < abs(log(found.mean / history_s))


def test_with_more_tasks_less_of_the_history_is_left() -> None:
    history = Estimate(10.0, 1.0, Source.SIMILAR, 9)
    few, many = (sample(1000, *[100] * n).estimate(history) for n in (1, 40))
    assert few is not None
    assert many is not None
    assert few.mean < many.mean == pytest.approx(100, rel=0.01)


def test_pilots_are_drawn_by_lot_and_the_other_tasks_wait() -> None:
    tasks = ArrayTasks(
        array=np.array([0, 0, 0, -1, 0]),
        waits=np.array([True, True, True, True, False]),
        lot=np.array([7, 3, 5, 1, 0]),
        samples=[sample(100, 60, running=1)],
        outside=np.array([94]),
    )
    found = tasks.columns(np.array([60.0, 60, 60, 10, 20]), np.array([60.0, 60, 60, 10, 60]))
    assert found.pilot.tolist() == [False, True, False, False, True]
    assert found.unsampled.tolist() == [True, False, True, False, False]
    assert found.others_gpu_s.tolist() == [140 + 94 * 60] * 3 + [0, 180 + 94 * 60]


def test_once_sampled_no_task_is_a_pilot_and_an_unknown_length_makes_the_array_unknown() -> None:
    tasks = ArrayTasks(
        array=np.array([0, 1]),
        waits=np.array([True, True]),
        lot=np.array([0, 0]),
        samples=[sample(3, 60), sample(3)],
        outside=np.array([0, 1]),
    )
    found = tasks.columns(np.array([60.0, inf]), np.array([60.0, inf]))
    assert (found.pilot.tolist(), found.unsampled.tolist()) == ([False, True], [False, False])
    assert found.others_gpu_s.tolist() == [0, inf]


@examples(60)
@given(st.lists(st.tuples(st.integers(-1, 2), st.booleans(), st.integers(0, 99)), min_size=1, max_size=20))
def test_as_many_pilots_are_drawn_as_are_missing_whatever_the_order_of_the_jobs(rows) -> None:
    array, waits, lot = (np.array(column) for column in zip(*rows, strict=True))
    samples = [sample(100, running=k) for k in range(3)]
    seconds = np.ones(len(rows))
    found = ArrayTasks(array, waits.astype(bool), lot, samples, np.zeros(3, int)).columns(seconds, seconds)
    for k in range(3):
        drawn = found.pilot & waits & (array == k)
        assert drawn.sum() == min(3 - k, (waits & (array == k)).sum())
        left = found.unsampled & (array == k)
        assert not left.any() or lot[drawn].max() <= lot[left].min()
    assert not (found.pilot | found.unsampled)[array < 0].any()
