"""Nodes that are lost in a future: their jobs go back into the queue, and come back elsewhere or when the node does."""

from dataclasses import replace

import numpy as np
import pytest

from allocation.policies import POLICIES
from allocation.policies.fifo import fifo
from estimation.node_lifetimes import NodeLifetime
from forecast.draws import draw_futures
from forecast.future import Played, play
from forecast.intervals import forecast
from forecast.outages import LOST_S, Outage, draw_outages
from forecast.present import Present, Rounds
from tests.forecast.cluster import HOUR_S, as_told, known, present_of

FIFO = Rounds(fifo, 60.0, strict=True)


def played(present: Present, *outages: Outage, rounds: Rounds = FIFO) -> Played:
    return play(present, replace(as_told(present), outages=outages), rounds)


def test_a_job_whose_node_is_lost_does_its_last_work_again_on_another() -> None:
    present = present_of([HOUR_S, HOUR_S], running=[0])
    found = played(present, Outage(0, 600.0, 9 * HOUR_S, lost_s=300.0))
    assert found.finish_s[0] == pytest.approx(HOUR_S + 300, rel=0.02)
    assert found.start_s[0] == 0, "its first start is past"


def test_no_more_is_lost_than_was_done_and_nothing_with_notice() -> None:
    present = present_of([HOUR_S], running=[0])
    assert played(present, Outage(0, 60.0, 9 * HOUR_S)).finish_s[0] == pytest.approx(HOUR_S + 60, rel=0.02)
    assert played(present, Outage(0, 600.0, 9 * HOUR_S, lost_s=0.0)).finish_s[0] == pytest.approx(HOUR_S, rel=0.02)


def test_a_gang_that_needs_the_node_waits_until_it_is_back() -> None:
    present = present_of([HOUR_S], gpus=[4], running=[0])
    found = played(present, Outage(1, 600.0, 2 * HOUR_S, lost_s=0.0))
    assert found.finish_s[0] == pytest.approx(3 * HOUR_S - 600, rel=0.03)


def test_nothing_starts_on_a_node_that_is_down() -> None:
    present = present_of([600.0] * 4, running=[0])
    found = played(present, Outage(1, 0.0, 2 * HOUR_S))
    assert np.sort(found.finish_s) == pytest.approx([600, 600, 1200, 1200], rel=0.05)


def test_a_cluster_of_which_every_node_is_down_waits() -> None:
    present = present_of([600.0])
    found = played(present, Outage(0, 0.0, HOUR_S), Outage(1, 0.0, 2 * HOUR_S))
    assert found.start_s[0] == pytest.approx(HOUR_S, rel=0.03)


@pytest.mark.parametrize("policy", ["motley", "max_min_fairness", "sia", "las", "hadar"])
def test_every_kind_of_policy_decides_on_what_is_left(policy: str) -> None:
    present = present_of([HOUR_S] * 6, gpus=[1, 2, 4, 1, 1, 2], running=[0])
    rounds = Rounds(POLICIES[policy], 60.0, 60.0)
    found = played(present, Outage(0, 300.0, HOUR_S), Outage(1, 5000.0, 6000.0), rounds=rounds)
    assert np.isfinite(found.finish_s).all()


def test_outages_come_as_often_and_last_as_long_as_the_lifetimes_say() -> None:
    steady, spot = NodeLifetime(1e12, HOUR_S), NodeLifetime(4 * HOUR_S, 2 * HOUR_S, notified=0.5)
    found = draw_outages([steady, spot], 6000 * HOUR_S, np.random.default_rng(0))
    assert {one.node for one in found} == {1}
    assert len(found) == pytest.approx(1000, rel=0.1)
    assert np.mean([one.until_s - one.from_s for one in found]) == pytest.approx(2 * HOUR_S, rel=0.1)
    assert np.mean([one.lost_s for one in found]) == pytest.approx(LOST_S / 2, rel=0.1)


def test_a_node_that_boots_takes_jobs_from_then_on_and_is_lost_no_sooner() -> None:
    spot = NodeLifetime(60.0, 60.0)
    first, *later = draw_outages([spot], HOUR_S, np.random.default_rng(0), up_from_s=[300.0])
    assert first == Outage(0, 0.0, 300.0, lost_s=0.0)
    assert later
    assert min(one.from_s for one in later) > 300
    assert draw_outages([], HOUR_S, np.random.default_rng(0), up_from_s=[0.0, 300.0]) == (first._replace(node=1),)


def test_jobs_on_a_cluster_that_sleeps_start_once_it_has_booted() -> None:
    present = present_of([HOUR_S] * 2)
    asleep = replace(known(present), up_from_s=np.array([300.0, 300.0]))
    found = forecast(present, asleep, FIFO, draws=4)
    assert found.start_s[:, 1] == pytest.approx([300, 300], abs=30)
    awake = replace(asleep, up_from_s=np.array([300.0, 0.0]))
    assert forecast(present, awake, FIFO, draws=4).start_s[:, 1] == pytest.approx([0, 0], abs=30)


def test_losses_of_nodes_make_ends_later_and_their_intervals_wider() -> None:
    present = present_of([8 * HOUR_S], gpus=[4], running=[0])
    steady = known(present)
    spot = replace(steady, lifetimes=[NodeLifetime(4 * HOUR_S, HOUR_S)] * 2)
    (before,), (after,) = (forecast(present, unknowns, FIFO, draws=16).finish_s for unknowns in (steady, spot))
    assert after[1] > before[1] + HOUR_S
    assert after[2] - after[0] > before[2] - before[0] + HOUR_S


def test_what_else_is_drawn_does_not_change_with_the_losses() -> None:
    present = present_of([HOUR_S] * 3, samples=1)
    without = replace(known(present, submitted_s=[-60.0]), left=np.full(3, np.nan))
    losing = replace(without, lifetimes=[NodeLifetime(HOUR_S, HOUR_S)] * 2)
    pairs = zip(
        *(draw_futures(present, one, draws=4, until_s=HOUR_S, seed=1) for one in (without, losing)), strict=True
    )
    assert all((one.left == other.left).all() for one, other in pairs)
