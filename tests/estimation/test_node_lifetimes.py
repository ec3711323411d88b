"""How long nodes stay: survival curves of censored intervals, and rates of nodes with little history."""

import numpy as np
import pytest

from estimation.node_lifetimes import Exposure, NodeLifetime, gang_lifetime, kaplan_meier

LENGTH = np.array([2.0, 3.0, 3.0, 5.0, 8.0])
ENDED = np.array([True, True, False, True, False])


def test_the_survival_curve_is_that_computed_by_hand() -> None:
    curve = kaplan_meier(LENGTH, ENDED)
    assert curve.time.tolist() == [2.0, 3.0, 5.0]
    assert curve.survival == pytest.approx([4 / 5, 4 / 5 * 3 / 4, 4 / 5 * 3 / 4 * 1 / 2])
    assert curve.at(np.array([0.0, 1.9, 2.0, 4.0, 100.0])) == pytest.approx([1, 1, 0.8, 0.6, 0.3])


def test_the_mean_below_a_time_is_the_area_under_the_curve() -> None:
    assert kaplan_meier(LENGTH, ENDED).mean_below(6.0) == pytest.approx(2 + 0.8 + 2 * 0.6 + 0.3)


def test_intervals_that_have_not_ended_lengthen_the_expected_lifetime() -> None:
    lengths = np.array([100.0, 100.0, 900.0])
    censored = Exposure.of(lengths, np.array([True, True, False])).shrunk_mean(500)
    assert censored > Exposure.of(lengths[:2], np.array([True, True])).shrunk_mean(500)


def test_a_node_without_history_has_the_mean_of_the_pool_and_one_with_much_its_own() -> None:
    assert Exposure(0, 0.0).shrunk_mean(3600) == 3600
    assert Exposure(1000, 1000 * 60.0).shrunk_mean(3600) == pytest.approx(60, rel=0.1)


def test_a_gang_ends_with_the_first_of_its_nodes() -> None:
    short, long = NodeLifetime(1000, 60, 1.0), NodeLifetime(3000, 600, 0.0)
    gang = gang_lifetime([short, long])
    assert gang.mean_up_s == pytest.approx(750)
    assert (gang.mean_down_s, gang.notified) == pytest.approx((0.75 * 60 + 0.25 * 600, 0.75))
