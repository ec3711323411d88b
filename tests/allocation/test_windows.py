"""Windows of nodes: which nodes and configurations each job may use, by how long it runs."""

import numpy as np
import pytest

from allocation.configurations import Configurations
from allocation.plan_round import plan_round
from allocation.policies.fifo import fifo
from allocation.problem import Problem
from allocation.quotas import Quotas
from allocation.rounds.windows import Stays, Windows, closed_by, open_nodes, weights_of
from tests.allocation.allocation_cases import build_inventory

HOUR = 3600.0


def windows(*nodes, begins_h=1.0, ends_h=2.0, gap_h=np.inf, team=-1):
    """One window of these nodes (N,)."""
    return Windows(
        begins_s=np.array([begins_h * HOUR]),
        ends_s=np.array([ends_h * HOUR]),
        gap_s=np.array([gap_h * HOUR]),
        nodes=np.array([nodes], dtype=bool),
        team=np.array([team]),
    )


def stays(*hours, types=1, least_h=0.1):
    """Jobs that run for so many hours on any type, and may be stopped; infinite: it is not known how long."""
    length_s = np.repeat(np.array(hours)[:, None] * HOUR, types, axis=1)
    return Stays(length_s, np.full(len(hours), least_h * HOUR))


def problem_of(node_gpus, gangs, jobs, **columns):
    """Jobs that run at 1 step/s per GPU in these gangs."""
    offered = Configurations.of(node_gpus, gangs)
    rate = np.tile(offered.gpus.astype(float), (jobs, 1))
    return Problem.of(rate, offered.usage, [sum(sizes) for sizes in node_gpus], nodes=offered.nodes, **columns)


def is_closed(window, stay, team=0):
    return closed_by(window, stay, np.array([team]))[0, 0].any()


@pytest.mark.parametrize(
    ("hours", "closed"),
    [(0.9, False), (1.1, True), (100, True), (np.inf, False)],
    ids=["fits", "not", "long", "unknown"],
)
def test_a_job_whose_length_is_known_must_end_before_a_window_begins(hours: float, closed: bool) -> None:
    assert is_closed(windows(True), stays(hours)) == closed


def test_a_job_of_unknown_length_starts_only_if_that_pays_before_it_is_stopped() -> None:
    assert not is_closed(windows(True, begins_h=0.11), stays(np.inf))
    assert is_closed(windows(True, begins_h=0.09), stays(np.inf))


def test_one_that_may_not_be_stopped_needs_a_known_length_before_a_window_that_is_near() -> None:
    assert is_closed(windows(True), stays(np.inf, least_h=np.inf))
    assert not is_closed(windows(True, begins_h=8 * 24, ends_h=9 * 24), stays(np.inf, least_h=np.inf))


def test_a_team_gives_the_weight_of_jobs_that_are_kept_off_to_its_others() -> None:
    problem = problem_of([[4]], [1], 3, team=np.array([0, 0, 1]), weight=np.array([0.75, 0.75, 1.5]))
    assert weights_of(problem, np.array([0, 2])) == pytest.approx([1, 1])


def test_a_job_longer_than_the_time_between_two_windows_is_stopped_before_each() -> None:
    nightly = windows(True, begins_h=8, gap_h=22)
    assert not is_closed(nightly, stays(23))
    assert is_closed(nightly, stays(23, least_h=np.inf))


def test_a_job_that_could_start_in_less_than_half_of_that_time_does_not_wait_for_it() -> None:
    """Of 20 hours, in two of 22: it is stopped before the window, if it may be."""
    nightly = windows(True, begins_h=8, gap_h=22)
    assert not is_closed(nightly, stays(20))
    assert is_closed(nightly, stays(20, least_h=np.inf))
    assert is_closed(nightly, stays(10))


def test_nobody_starts_in_a_window_and_everybody_after_it() -> None:
    assert is_closed(windows(True, begins_h=-1, ends_h=0.1), stays(0.01))
    assert not is_closed(windows(True, begins_h=-1, ends_h=0), stays(50))


def test_a_reservation_is_open_to_its_team() -> None:
    assert not is_closed(windows(True, begins_h=-1, team=7), stays(50), team=7)
    assert is_closed(windows(True, begins_h=-1, team=7), stays(0.1), team=8)


def test_a_gang_has_no_configuration_that_only_closed_nodes_hold() -> None:
    """One node of 4 GPUs is open, one of 8 is closed: a gang of 8 fits nowhere, one of 4 on the first."""
    problem, inventory = problem_of([[4, 8]], [4, 8], jobs=2), build_inventory([[4, 8]], 2)
    left = open_nodes(problem, inventory, windows(False, True), stays(5, 0.5))
    assert left.possible.tolist() == [[True, False], [True, True]]
    assert left.inventory.open_to(0).tolist() == [True, False]
    assert not left.inventory.restricted[1]
    assert left.closed.tolist() == [[True], [False]]


def test_parts_of_a_gang_need_whole_nodes() -> None:
    problem, inventory = problem_of([[4, 4, 4]], [8], jobs=1), build_inventory([[4, 4, 4]], 1)
    assert open_nodes(problem, inventory, windows(True, False, False), stays(5)).possible.all()
    assert not open_nodes(problem, inventory, windows(True, True, False), stays(5)).possible.any()


def test_nodes_that_a_job_asks_for_and_those_of_windows_are_combined() -> None:
    node_gpus = [[4, 4, 4]]
    inventory = build_inventory(node_gpus, 2, node_set=[0, -1], node_sets=[[True, True, False]])
    left = open_nodes(problem_of(node_gpus, [4], jobs=2), inventory, windows(False, True, False), stays(5, 5))
    assert left.inventory.open_to(0).tolist() == [True, False, False]
    assert left.inventory.open_to(1).tolist() == [True, False, True]


def test_a_job_stays_where_it_is_and_others_are_placed_around_the_window() -> None:
    """The first job holds the node of the window; the second is too long for it, the third fits before it."""
    node_gpus = [[4, 4]]
    problem = problem_of(node_gpus, [4], jobs=3, held=[0, -1, -1])
    inventory = build_inventory(node_gpus, 3, holder=[0, 0, 0, 0, -1, -1, -1, -1])
    left = open_nodes(problem, inventory, windows(True, False), stays(5, 5, 0.5))
    assert left.inventory.open_to(0).all()
    assert left.possible.all()
    plan = plan_round(problem, left.inventory, Quotas.none(3), fifo, round_s=60)
    assert plan.owner.tolist() == [0] * 4 + [1] * 4


def test_windows_come_nearer() -> None:
    later = windows(True).after(1.5 * HOUR)
    assert (later.begins_s[0], later.ends_s[0]) == (-0.5 * HOUR, 0.5 * HOUR)
