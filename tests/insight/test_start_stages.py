"""Where a start went: stages between recorded moments, and their quantiles for a team."""

from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from rest_framework.test import APIClient

from insight_app.explain.start_stages import Moments, bars_of, stages_of, team_starts
from tests.rest_callers import caller
from tests.service_lab import Lab

T = datetime(2026, 5, 4, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return T + timedelta(seconds=seconds)


def test_each_stage_lies_between_two_recorded_moments() -> None:
    stages = stages_of(Moments(T, at(2), at(5), at(65)), at(100))
    assert [(one.name, one.seconds, one.ended) for one in stages] == [
        ("claim", 2, True),
        ("launch", 3, True),
        ("first step", 60, True),
    ]
    assert [(bar.x, bar.width) for bar in bars_of(stages)] == [(0, 3.077), (3.077, 4.615), (7.692, 92.308)]


@pytest.mark.parametrize(
    ("moments", "expected"),
    [
        (Moments(T, None, None, None), [("claim", 9, False)]),
        (Moments(T, at(2), None, None), [("claim", 2, True), ("launch", 7, False)]),
        (Moments(T, at(2), at(5), None), [("claim", 2, True), ("launch", 3, True)]),
        (Moments(T, at(2), at(1), None), [("claim", 2, True), ("launch", 0, True)]),  # clocks of two machines
    ],
)
def test_what_is_not_recorded_is_not_invented(moments: Moments, expected: list[tuple[str, float, bool]]) -> None:
    assert [(one.name, one.seconds, one.ended) for one in stages_of(moments, at(9))] == expected


def lengths(moments: Moments) -> dict[str, float]:
    return {one.name: one.seconds for one in stages_of(moments, at(100))}


START = Moments(T, at(2), at(10), at(60), code_s=5, setup_s=8, restore_s=12, restored_at=at(55))


def test_what_engine_and_program_measured_are_stages_of_their_own() -> None:
    whole = {"claim": 2, "launch": 3, "code": 5, "setup": 8, "program": 25, "restore": 12, "warm-up": 5}
    assert lengths(START) == whole
    assert [*lengths(START._replace(first_step_at=None, restored_at=None))] == ["claim", "launch", "code", "setup"]
    old = START._replace(code_s=None, setup_s=None, restored_at=None, restore_s=None)  # of an older agent and helper
    assert lengths(old) == {"claim": 2, "launch": 8, "first step": 50}


@pytest.mark.parametrize(
    "moments",
    [
        START._replace(code_s=1e9, setup_s=1e9, restore_s=1e9),
        START._replace(started_at=at(70)),
        START._replace(started_at=at(-70)),
        START._replace(restored_at=at(-1e6)),
        START._replace(restored_at=at(1e6)),
        START._replace(restore_s=-5),
    ],
)
def test_no_clock_makes_a_stage_negative_or_longer_than_what_it_is_part_of(moments: Moments) -> None:
    found = lengths(moments)
    whole = lengths(moments._replace(code_s=None, setup_s=None, restored_at=None))
    assert min(found.values()) >= 0
    assert sum(found.values()) == pytest.approx(sum(whole.values()))


@pytest.fixture
def ended(lab: Lab) -> Lab:
    """Ten first starts of ada's team of 1 to 10 s each, and a restart of 100 s."""
    lab.node("n1", gpus=4)
    for seconds in range(1, 11):
        _ended(lab, seconds, number=1)
    _ended(lab, 100, number=2)
    return lab


def _ended(lab: Lab, seconds: float, *, number: int) -> None:
    claimed = lab.now - timedelta(hours=1)
    launched, started = claimed + timedelta(seconds=seconds), claimed + timedelta(seconds=2 * seconds)
    moments = {"claimed_at": claimed, "launched_at": launched, "started_at": started, "first_step_at": started}
    code = {"code_s": 40} if number > 1 else {}
    over = {"state": "ended", "outcome": "failed", "ended_at": lab.now, "gone_at": lab.now}
    lab.attempt(lab.submit(), number=number, **moments, **code, **over)


def test_a_team_has_quantiles_of_starts_and_of_restarts(ended: Lab) -> None:
    team = ended.team()
    with CaptureQueriesContext(connection) as queries:
        found = team_starts(team, ended.now)
    assert len(queries) == 1
    assert {one.stage for one in found if not one.restart} == {"claim", "launch", "first step"}
    told = {(one.stage, one.restart): (one.starts, one.p50_s, one.p90_s) for one in found}
    assert told["claim", False] == (10, 5.5, pytest.approx(9.1))
    assert told["launch", True] == (1, 60, 60)
    assert told["code", True] == (1, 40, 40)
    assert team_starts(ended.team(), ended.now + timedelta(days=8)) == []


def test_rest_has_them_for_members_alone(ended: Lab) -> None:
    ada = caller(ended.user())
    rows = ada.get("/api/v1/teams/vision/starts").json()
    assert rows["window_seconds"] == 7 * 86_400
    assert rows["stages"][0] == {
        "stage": "claim",
        "restart": False,
        "starts": 10,
        "p50_seconds": 5.5,
        "p90_seconds": pytest.approx(9.1),
    }
    stranger: APIClient = caller(ended.user("eve", "language"))
    assert stranger.get("/api/v1/teams/vision/starts").status_code == 404
