"""Filling of free GPUs between decisions: who starts, and at what cost."""

import sys
from dataclasses import replace
from types import FrameType

import numpy as np

from forecast import filling
from forecast.filling import Filling
from tests.forecast.cluster import present_of


def filling_of(rate: np.ndarray, *, free: list[int]) -> Filling:
    """Rows with these rates on 1, 2 and 4 GPUs, while these of the four GPUs, on two nodes of two, are free."""
    present = present_of([600.0] * len(rate))
    owner = np.zeros(4, dtype=np.int64)
    owner[free] = -1
    problem = replace(present.problem, rate=rate)
    return Filling.of(problem, present.inventory, present.quotas, present.problem.held, owner)


def calls_of(free: Filling, queue: np.ndarray) -> tuple[list[int], int]:
    """Rows that start, and the number of calls of functions of the module."""
    calls = 0

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal calls
        calls += event == "call" and frame.f_code.co_filename == filling.__file__

    sys.setprofile(count)
    try:
        started = [start.row for start in free.starts(queue, strict=False)]
    finally:
        sys.setprofile(None)
    return started, calls


def test_a_long_queue_for_gpus_that_are_not_free_costs_few_steps() -> None:
    """Two GPUs are free, on two nodes: 2,000 rows want four, 2,000 want two of one node, the last wants one."""
    rate = np.repeat([[0.0, 0.0, 1.0], [0.0, 1.0, 0.0], [1.0, 0.0, 0.0]], [2_000, 2_000, 1], axis=0)
    started, calls = calls_of(filling_of(rate, free=[0, 2]), np.arange(4_001))
    assert started == [4_000]
    assert calls < 30


def test_a_strict_queue_stops_at_the_first_that_does_not_fit() -> None:
    rate = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]])
    assert [start.row for start in filling_of(rate, free=[0, 1]).starts(np.arange(3), strict=True)] == [0]
    assert [start.row for start in filling_of(rate, free=[0, 1]).starts(np.arange(3), strict=False)] == [0, 2]
