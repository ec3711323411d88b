"""Jobs that may not run yet in a future: children of others, and tasks beyond the limit of their array."""

from dataclasses import replace

import numpy as np
import pytest

from allocation.policies.fifo import fifo
from forecast.future import play
from forecast.gates import Gates, Waits
from forecast.present import Present, Rounds
from tests.forecast.cluster import HOUR_S, as_told, present_of

FIFO = Rounds(fifo, 60.0, strict=True)


def waiting(
    present: Present,
    *,
    parents: dict[int, frozenset[int]] | None = None,
    tasks: tuple[int, ...] = (),
    at_a_time: int = 1,
) -> Present:
    array = np.full(present.jobs, -1)
    array[list(tasks)] = 0
    return replace(present, waits=Waits(parents or {}, array, np.array([at_a_time])))


def test_a_child_starts_when_the_last_of_its_parents_has_ended() -> None:
    """Two GPUs are free all the time."""
    present = waiting(present_of([600.0, 1800.0, 60.0], running=[0, 1]), parents={2: frozenset({0, 1})})
    played = play(present, as_told(present), FIFO)
    assert played.start_s[2] == pytest.approx(1800, rel=0.03)
    assert played.finish_s[2] == pytest.approx(1860, rel=0.03)


def test_a_chain_of_children_is_played_to_its_end() -> None:
    present = waiting(present_of([600.0] * 3), parents={1: frozenset({0}), 2: frozenset({1})})
    played = play(present, as_told(present), FIFO)
    assert played.start_s == pytest.approx([0, 600, 1200], abs=40)


def test_a_strict_queue_is_not_stopped_by_a_job_that_may_not_run_yet() -> None:
    present = waiting(present_of([HOUR_S, 60.0, 60.0], gpus=[1, 4, 1], running=[0]), parents={1: frozenset({0})})
    assert play(present, as_told(present), FIFO).start_s[2] == pytest.approx(0)


def test_no_more_tasks_run_than_their_array_allows_and_others_pass_them() -> None:
    present = waiting(present_of([600.0] * 5, running=[0]), tasks=(0, 1, 2, 3), at_a_time=2)
    played = play(present, as_told(present), FIFO)
    assert played.start_s[:4] == pytest.approx([0, 0, 600, 600], abs=40)
    assert played.start_s[4] == pytest.approx(0)


def test_a_task_that_is_freed_takes_its_turn_within_the_limit_of_its_array() -> None:
    waits = Waits({1: frozenset({4})}, np.array([0, 0, 0, 0, -1]), np.array([1]))
    gates = Gates.of(waits, np.array([True, False, False, False, False]))
    assert gates.closed == {1, 2, 3}
    assert list(gates.opened_by(4)) == [], "there is no room"
    assert list(gates.opened_by(0)) == [2]
    assert list(gates.opened_by(2)) == [3]
    assert list(gates.opened_by(3)) == [1]
    assert not gates.closed
