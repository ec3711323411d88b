"""A plan saves where it is cheap and as often as it pays, and knows how long the work will take."""

import numpy as np
import pytest

from estimation.checkpoint_plan import daly_interval, plan_checkpoints, with_notice, young_interval
from estimation.interrupted_work import Interruptions, expected_time
from estimation.node_lifetimes import kaplan_meier
from estimation.types import Floats

SPOT = Interruptions(mean_up_s=7200, mean_down_s=1800)
STAGES = 480


def constant(cost_s: float, stages: int = STAGES) -> tuple[Floats, Floats]:
    """Seconds of each checkpoint, and of each restore."""
    return np.full(stages, cost_s), np.full(stages + 1, 90.0)


def test_short_stages_of_equal_cost_are_saved_at_the_interval_of_young_and_daly() -> None:
    plan = plan_checkpoints(np.full(STAGES, 30.0), *constant(60), SPOT)
    work_s = plan.segment_s - 60
    assert young_interval(60, 7200) == pytest.approx(930, abs=1)
    assert daly_interval(60, 7200) == pytest.approx(890, abs=1)
    assert work_s == pytest.approx(np.full(len(work_s), 900.0), rel=0.05)


def test_on_a_node_that_has_stayed_for_long_it_saves_less_often() -> None:
    """Nine of ten nodes go within two hours, evenly spread; the others stay for days."""
    lengths = np.concatenate([np.linspace(60, 7200, 900), np.linspace(86_400, 864_000, 100)])
    curve = kaplan_meier(lengths, np.ones(1000, dtype=np.bool_))
    work_s, options = np.full(120, 60.0), {"lifetimes": curve}
    young, old = (
        plan_checkpoints(work_s, *constant(60, 120), SPOT, **options, age_s=age_s) for age_s in (0.0, 10_000.0)
    )
    assert len(old.segment_s) < len(young.segment_s) / 2
    assert old.expected_s < young.expected_s
    anew = plan_checkpoints(work_s, *constant(60, 120), SPOT, **options)
    assert young.segment_s[-1] > anew.segment_s[-1], "by then its node is old"


def test_the_expected_time_of_a_plan_is_the_sum_over_its_segments() -> None:
    plan = plan_checkpoints(np.full(STAGES, 30.0), *constant(60), SPOT)
    assert plan.expected_s == pytest.approx(expected_time(plan.segment_s, plan.restore_s, SPOT).sum())
    assert plan.duration(SPOT).mean_s == pytest.approx(plan.expected_s)


def test_no_other_choice_of_boundaries_takes_less_time() -> None:
    work_s = np.random.default_rng(0).lognormal(6, 1, 8)
    cost_s = np.array([300.0, 10, 200, 10, 300, 60, 10, 30])
    best = plan_checkpoints(work_s, cost_s, np.full(9, 90.0), SPOT).expected_s
    every = []
    for bits in range(2**7):
        ends = [j for j in range(8) if j == 7 or bits >> j & 1]
        parts = np.split(work_s, np.array(ends[:-1]) + 1)
        x = np.array([part.sum() for part in parts]) + cost_s[ends]
        every.append(expected_time(x, 90.0, SPOT).sum())
    assert best == pytest.approx(min(every))


def test_a_plan_prefers_the_boundaries_where_state_is_small() -> None:
    cost_s = np.where(np.arange(1, STAGES + 1) % 10 == 0, 8.0, 150.0)
    plan = plan_checkpoints(np.full(STAGES, 30.0), cost_s, np.full(STAGES + 1, 90.0), SPOT)
    assert (plan.stages % 10 == 0).all()


def test_nodes_that_stay_are_given_one_checkpoint_and_it_is_the_last() -> None:
    calm = Interruptions(mean_up_s=np.inf, mean_down_s=60)
    assert plan_checkpoints(np.full(40, 30.0), *constant(60, 40), calm).stages.tolist() == [40]


def test_a_plan_for_recorded_lifetimes_has_no_segment_that_none_of_them_would_hold() -> None:
    lifetimes = kaplan_meier(np.array([600.0, 1200.0, 1500.0]), np.array([True, True, True]))
    plan = plan_checkpoints(np.full(60, 30.0), *constant(60, 60), SPOT, lifetimes=lifetimes)
    assert plan.segment_s.max() < 1500
    assert np.isfinite(plan.expected_s)


def test_fewer_checkpoints_pay_where_interruptions_are_announced() -> None:
    announced = SPOT._replace(notified=0.9, notice_s=120.0)
    often = plan_checkpoints(np.full(STAGES, 30.0), *constant(60), SPOT)
    seldom = plan_checkpoints(np.full(STAGES, 30.0), *constant(60), with_notice(announced, 60))
    assert len(seldom.stages) < len(often.stages) / 2


def test_a_notice_shorter_than_a_checkpoint_is_worth_nothing() -> None:
    announced = SPOT._replace(notified=0.9, notice_s=60.0)
    assert with_notice(announced, 40.0) == announced
    assert with_notice(announced, 60.0).notified == 0
