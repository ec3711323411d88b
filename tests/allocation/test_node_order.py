"""The order in which jobs prefer nodes: losses, price, and whether they are done by their deadline there."""

from math import inf

import numpy as np
import pytest

from allocation.problem import Problem
from allocation.rounds.node_order import NodeOrder, expected_on
from allocation.rounds.placement import place_gangs
from estimation.interrupted_work import Interruptions, duration_of
from tests.allocation.allocation_cases import build_inventory

HOUR, DAY = 3600.0, 86_400.0
STABLE, SPOT = 1 / (90 * DAY), 1 / (4 * HOUR)
IDLE = -1


def jobs(work_h, *, deadline_h=None, restart_s=60.0, gpus=1):
    """Jobs of a step a second on one GPU type of which a node has `gpus`."""
    due = np.array([inf if hours is None else hours * HOUR for hours in deadline_h or [None] * len(work_h)])
    return Problem.of(
        np.ones((len(work_h), 1)),
        [[gpus]],
        [9 * gpus],
        remaining_steps=np.array(work_h, dtype=float) * HOUR,
        deadline_s=due,
        restart_s=np.full(len(work_h), restart_s),
    )


def placed(problem, **inventory):
    """The node on which each job is placed, nodes having as many GPUs as a job takes."""
    gpus = int(problem.gpus[0])
    nodes = [[gpus] * len(next(iter(inventory.values())))]
    owner = place_gangs(
        problem, np.zeros(len(problem.rate), dtype=int), build_inventory(nodes, len(problem.rate), **inventory)
    )
    return [int(np.flatnonzero(owner == i)[0]) // gpus for i in range(len(problem.rate))]


@pytest.mark.parametrize("work_h", [2.0, 10.0])
def test_the_expected_time_is_that_of_the_planner_of_checkpoints(work_h: float) -> None:
    """`estimation` computes the same with whole segments."""
    stay, s = Interruptions(4 * HOUR, 300.0), 60.0
    x = np.sqrt(2 * s * stay.mean_up_s)
    segments = np.full(round(work_h * HOUR / x), x + s)
    planned = duration_of(segments, s, stay)
    work_s = x * len(segments)
    mine = expected_on(
        np.array(work_s), np.array(1.0), np.array(SPOT), checkpoint_s=np.array(s), deadline_s=np.array(planned.mean_s)
    )
    assert float(mine.time_s) == pytest.approx(planned.mean_s, rel=0.01)
    later_s = planned.mean_s + np.sqrt(planned.variance)
    assert float(
        expected_on(
            np.array(work_s), np.array(1.0), np.array(SPOT), checkpoint_s=np.array(s), deadline_s=np.array(later_s)
        ).in_time
    ) == pytest.approx(planned.done_within(later_s), abs=0.1)


def test_alike_nodes_have_one_order_and_nothing_is_computed() -> None:
    problem = jobs([1, 2], deadline_h=[3, None])
    order = NodeOrder.of(problem, np.zeros(2, dtype=int), build_inventory([[1, 1]], 2))
    assert (order.order.tolist(), order.rank.tolist(), order.short_of_slack.any()) == ([0, 0], [[0, 0]], False)


def test_a_job_short_of_slack_has_the_stable_node_and_the_other_the_cheap_one() -> None:
    """Both could run on either; the second has no deadline, and the spot node costs a third."""
    problem = jobs([8, 8], deadline_h=[8.5, None])
    assert placed(problem, node_loss_rate=[SPOT, STABLE], node_price=[1.0, 3.0]) == [1, 0]


def test_at_one_price_a_job_without_a_deadline_has_the_steadier_node_too() -> None:
    assert placed(jobs([8]), node_loss_rate=[SPOT, STABLE]) == [1]
    assert placed(jobs([8]), node_loss_rate=[SPOT, STABLE], node_price=[1.0, 1.0]) == [1]


def test_a_deadline_with_much_slack_is_no_reason_to_pay_more() -> None:
    assert placed(jobs([8], deadline_h=[80]), node_loss_rate=[SPOT, STABLE], node_price=[1.0, 3.0]) == [0]


def test_a_deadline_that_is_missed_everywhere_is_no_reason_either() -> None:
    assert placed(jobs([8], deadline_h=[1]), node_loss_rate=[SPOT, STABLE], node_price=[1.0, 3.0]) == [0]


def test_a_job_short_of_slack_chooses_before_a_larger_gang() -> None:
    problem = Problem.of(
        [[1, 0], [0, 1]],
        [[2, 1]],
        [4],
        remaining_steps=[8 * HOUR] * 2,
        deadline_s=[inf, 8.5 * HOUR],
        restart_s=[60, 60],
    )
    inventory = build_inventory([[2, 2]], 2, node_loss_rate=[STABLE, SPOT])
    assert place_gangs(problem, np.array([0, 1]), inventory).tolist() == [1, IDLE, 0, 0]


def test_a_price_alone_orders_stable_nodes() -> None:
    assert placed(jobs([8]), node_price=[2.0, 1.0]) == [1]


def test_work_that_is_not_known_has_no_chance_to_weigh() -> None:
    problem = jobs([inf], deadline_h=[10])
    assert placed(problem, node_loss_rate=[SPOT, STABLE], node_price=[1.0, 3.0]) == [0]


def test_the_whole_gang_must_stay() -> None:
    """The rates of its nodes add up: four nodes are lost four times as often as one."""
    one, four = (
        expected_on(np.array(DAY), np.array(n), np.array(SPOT), checkpoint_s=np.array(60.0), deadline_s=np.array(inf))
        for n in (1.0, 4.0)
    )
    alone = expected_on(
        np.array(DAY), np.array(1.0), np.array(4 * SPOT), checkpoint_s=np.array(60.0), deadline_s=np.array(inf)
    )
    assert four.time_s == alone.time_s > one.time_s
