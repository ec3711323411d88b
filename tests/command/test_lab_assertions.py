"""Assertions about a run of the policy lab, as `motley lab run --assert` checks them."""

from typing import Any

import pytest

from motley_client.spec import SpecError
from motley_command.lab_assertions import Assertion


def result(**other: Any) -> dict[str, Any]:
    policy = {
        "policy": "sia",
        "failed": "",
        "figures": {"avg_jct_h": 1.1, "p99_jct_h": 9.0, "restarts_per_job": 0.0, "utilization": None},
        "teams": [
            {"team": "vision", "jobs": 9, "avg_jct_h": 1.0, "change": -0.2},
            {"team": "language", "jobs": 3, "avg_jct_h": 1.0, "change": 0.1},
            {"team": "idle", "jobs": 0, "avg_jct_h": None, "change": None},
        ],
        "sizes": [{"size": "5 to 8", "jobs": 12, "avg_jct_h": 1.0, "change": 0.0}],
    }
    now = {"avg_jct_h": 1.0, "p99_jct_h": 10.0, "restarts_per_job": 0.0, "utilization": 0.9}
    return {"present": {"policy": "motley", "figures": now}, "policies": [policy | other]}


@pytest.mark.parametrize(
    "text",
    [
        "jct <= 1.1",
        "jct<=1.2",
        "p99 < 1",
        "restarts <= 1",
        "team:vision.jct <= 0.8",
        "team:*.jct <= 1.1",
        "size:5 to 8.jct >= 1",
    ],
)
def test_what_holds_is_not_told(text: str) -> None:
    assert list(Assertion.parse(text).failures(result())) == []


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("jct <= 1.05", "sia: jct <= 1.05 does not hold: jct is 1.100 of now"),
        ("team:*.jct <= 1.05", "sia: team:*.jct <= 1.05 does not hold: jct of language is 1.100 of now"),
        ("utilization >= 1", "sia: utilization >= 1 does not hold: utilization is not known"),
        ("team:speech.jct <= 2", "sia: team:speech.jct <= 2: no team with jobs is named so"),
    ],
)
def test_what_does_not_hold_is_told_with_its_ratio(text: str, told: str) -> None:
    assert list(Assertion.parse(text).failures(result())) == [told]


def test_a_policy_that_failed_holds_nothing() -> None:
    failed = result(figures=None, failed="too many jobs", teams=[])
    assert list(Assertion.parse("jct <= 2").failures(failed)) == ["sia: jct <= 2: too many jobs"]


@pytest.mark.parametrize(
    "text", ["", "jct", "jct = 1", "jct <= -1", "speed <= 1", "team:*.p99 <= 1", "team.jct <= 1", "jct <= 1.05x"]
)
def test_what_is_no_assertion_is_refused_with_the_form(text: str) -> None:
    with pytest.raises(SpecError, match="--assert"):
        Assertion.parse(text)
