"""Max-min fairness: examples to check by hand."""

import numpy as np
import pytest

from allocation.policies.max_min_fairness import max_min_fairness
from allocation.problem import Problem


def test_two_jobs_each_get_the_type_that_suits_them():
    """On one V100 and one K80, of speeds 4:1 and 2:1: the first job is on the V100 4/5 of the time.

    Rates relative to the average GPU: 1.6 and 0.4, 4/3 and 2/3. With x the first job's time on the V100, and the rest
    of it on the K80: 1.6 x + 0.4 (1 - x) = 4/3 (1 - x) + 2/3 x, so x = 14/28 = 1/2 and z = 1.
    """
    decision = max_min_fairness(Problem.of([[4, 1], [2, 1]], np.eye(2), [1, 1]))
    assert decision.objective == pytest.approx(1)
    assert decision.shares == pytest.approx(np.full((2, 2), 0.5))


def test_a_price_is_what_one_more_gpu_would_add_to_the_worst_off_job():
    """Three equal jobs on two GPUs get 2/3 each; on three GPUs, all of their time."""
    decision = max_min_fairness(Problem.of([[5], [5], [5]], [[1]], [2]))
    assert (decision.objective, decision.prices) == (pytest.approx(2 / 3), pytest.approx([1 / 3]))


def test_the_slack_goes_to_the_next_worst_off():
    """Five jobs, one of which can use the T4 alone, and has all of it; the others share three V100s by level."""
    rate = [[1, 0], [0, 1], [0, 1], [0, 1], [0, 1]]
    shares = max_min_fairness(Problem.of(rate, np.eye(2), [1, 3])).shares
    assert shares == pytest.approx(np.array([[1, 0]] + 4 * [[0, 0.75]]))


def test_weights_count_among_waiting_jobs_also_where_one_has_all_it_can_use():
    """A job that is bound by its own time does not keep another from getting three times as much as a third."""
    weight = [100, 3, 1]
    shares = max_min_fairness(Problem.of([[1], [1], [1]], [[1]], [2], weight=weight)).shares[:, 0]
    assert shares == pytest.approx([1, 0.75, 0.25])


def test_a_gpu_type_that_no_job_wants_more_of_has_no_price():
    decision = max_min_fairness(Problem.of([[4, 0], [4, 0]], np.eye(2), [1, 5]))
    assert decision.prices == pytest.approx([decision.objective, 0])
