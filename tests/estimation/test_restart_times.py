"""Restart times: shrunk from what is declared to the workload, and from there to a place."""

import pytest

from estimation.restart_times import MeasuredRestarts, MeasuredTime, RestartPlace, RestartTime, restart_time

HERE, THERE = RestartPlace("a100", "local"), RestartPlace("v100", "servers")


def times(place: RestartPlace, *seconds: float) -> list[MeasuredTime]:
    return [MeasuredTime(place, one) for one in seconds]


def test_what_is_declared_holds_until_something_was_measured() -> None:
    found = restart_time(30.0, MeasuredRestarts())
    assert (found, found.is_measured) == (RestartTime(0.0, 30.0), False)


def test_two_starts_count_as_much_as_what_was_declared() -> None:
    found = restart_time(10.0, MeasuredRestarts(starts=times(HERE, 40.0, 40.0)))
    assert (found.start_s, found.starts, found.is_measured) == (pytest.approx(20.0), 2, True)


def test_many_restarts_leave_nothing_of_a_wrong_declaration() -> None:
    measured = MeasuredRestarts(times(HERE, *[5.0] * 200), times(HERE, *[60.0] * 200))
    assert restart_time(3600.0, measured).seconds == pytest.approx(65.0, rel=0.05)


def test_a_place_draws_the_workloads_times_towards_its_own() -> None:
    measured = MeasuredRestarts(starts=times(HERE, *[10.0] * 8) + times(THERE, *[90.0] * 8))
    of_all, here, there = (
        restart_time(30.0, measured, **where).start_s
        for where in ({}, {"starts_at": HERE.__eq__}, {"starts_at": THERE.__eq__})
    )
    assert 10 < here < of_all < there < 90
    assert restart_time(30.0, measured, starts_at=HERE.__eq__).starts_at_place == 8


def test_one_start_behind_a_disk_that_hung_does_not_decide() -> None:
    measured = MeasuredRestarts(starts=times(HERE, *[10.0] * 7, 3600.0))
    assert restart_time(10.0, measured).start_s < 20


def test_who_declares_nothing_is_counted_nothing() -> None:
    assert restart_time(0.0, MeasuredRestarts(times(HERE, 9.0), times(HERE, 9.0))).seconds == 0
