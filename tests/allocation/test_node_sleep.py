"""Dynamic Resource Sleep: which nodes stay awake, step by step."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocation.node_sleep import SleepParameters, SleepState, next_state, nodes_to_sleep

USUAL = SleepParameters(recent_steps=2, horizon_steps=6, reserve=2, keep_steps=3, least_surplus=1)
FALLS, RISES_AGAIN, RISES = (3.0, 3.0), (3.0, 4.0), (9.0, 9.0)


def after(state: SleepState, used: list[float], ahead: tuple[float, float], *, step: int = 10) -> SleepState:
    return next_state(state, step, used, ahead, total=20, parameters=USUAL)


def test_the_surplus_sleeps_where_demand_falls_and_is_forecast_to_fall_on() -> None:
    assert after(SleepState(20), [8, 7, 5], FALLS).awake == 5 + USUAL.reserve


@pytest.mark.parametrize(
    ("used", "ahead"),
    [([5, 5, 5], FALLS), ([8, 7, 5], RISES), ([8, 7, 5], RISES_AGAIN), ([7, 5], FALLS)],
    ids=["not lately", "not to come", "but rises again", "too little is known"],
)
def test_else_all_stay_awake(used: list[float], ahead: tuple[float, float]) -> None:
    assert after(SleepState(20), used, ahead).awake == 20


def test_a_surplus_that_is_too_small_stays_awake() -> None:
    coarse = replace(USUAL, least_surplus=5)
    assert next_state(SleepState(11), 10, [8, 7, 5], FALLS, total=20, parameters=coarse).awake == 11
    assert next_state(SleepState(12), 10, [8, 7, 5], FALLS, total=20, parameters=coarse).awake == 7


def test_demand_wakes_nodes_at_once_and_none_sleeps_for_some_steps() -> None:
    woken = after(SleepState(4), [4, 4, 9], FALLS, step=10)
    assert woken == SleepState(11, 13)
    assert after(woken, [9, 8, 5], FALLS, step=12).awake == 11
    assert after(woken, [9, 8, 5], FALLS, step=13).awake == 7


def test_no_more_wake_than_there_are() -> None:
    assert after(SleepState(4), [4, 4, 19], FALLS).awake == 20


demands = st.lists(st.integers(0, 20), min_size=1, max_size=60)


@given(demands, st.floats(0, 20), st.floats(0, 20))
def test_there_are_always_as_many_awake_as_are_needed(used: list[int], ahead: float, further: float) -> None:
    state = SleepState(20)
    for step in range(len(used)):
        recent = [float(nodes) for nodes in used[max(step - USUAL.recent_steps, 0) : step + 1]]
        state = after(state, recent, (ahead, further), step=step)
        assert used[step] <= state.awake <= 20


def test_the_nodes_that_were_idle_longest_sleep_and_one_stays() -> None:
    idle_s = {"n1": 60.0, "n2": 3600.0, "n3": 600.0}
    assert nodes_to_sleep(idle_s, awake=5, wanted=3) == ["n2", "n3"]
    assert nodes_to_sleep(idle_s, awake=3, wanted=0) == ["n2", "n3"]
    assert nodes_to_sleep(idle_s, awake=3, wanted=4) == []
