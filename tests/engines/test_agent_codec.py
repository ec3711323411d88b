"""Messages of agents: what is encoded is decoded again, and what is not of its type is refused with its place."""

import json
from datetime import UTC, datetime, time, timedelta
from pathlib import Path
from typing import Any

import pytest

from engines.agent.codec import BadMessage, decode, encode
from engines.agent.messages import AttemptNews, Lending, Orders, StopCommand, Sync
from engines.protocol import (
    AttemptReport,
    CpuLimit,
    GpuReading,
    GpuReport,
    Launch,
    NodeLaunch,
    NodeReport,
    Phase,
    Progress,
    Setup,
    StopReason,
    Throttle,
)

INFINITE = json.loads("1e999")
AT = datetime(2026, 11, 24, 20, 0, tzinfo=UTC)
LAUNCH = Launch(
    7,
    "0190c3f0-0000-7000-8000-000000000000",
    ("python", "train.py"),
    (NodeLaunch("desk", {"A": "1"}, gpus=2),),
    env={"B": "2"},
    code=Path("at-the-service"),
    setup=Setup("pip install x", "k1"),
    grace=timedelta(seconds=90),
    secrets={"KEY": "long enough"},
    limits_cpus=CpuLimit.QUOTA,
)
NODE = NodeReport("desk", "k80", (GpuReport(0, "GPU-1", 24_000),), cpus=8, memory_mib=32_000)
RUNS = AttemptReport(7, Phase.RUNNING, started_at=AT, progress=Progress(3, 0, AT, 9, AT, loss=0.5))


@pytest.mark.parametrize(
    "message",
    [
        Sync(1, "m", NODE, (AttemptNews(RUNS, handed_over=True),), leaving=timedelta(minutes=5)),
        Sync(1, "m", NODE, gpus=(GpuReading(0, 37.0, power_w=250.5, throttle=Throttle.SW_THERMAL),)),
        Orders(
            timedelta(seconds=240),
            timedelta(seconds=1),
            launches=(LAUNCH,),
            stops=(StopCommand(7, StopReason.DRAIN, timedelta(seconds=30)),),
            forget=(3,),
        ),
        Lending(time(20), time(8), "Europe/Berlin"),
    ],
)
def test_a_message_comes_as_it_was_sent(message: Any) -> None:
    assert decode(type(message), encode(message)) == message


def test_a_command_of_one_text_stays_a_text() -> None:
    launch = decode(Launch, {"attempt": 1, "job": "j", "command": "echo a", "tasks": []})
    assert launch.command == "echo a"


@pytest.mark.parametrize(
    ("raw", "place"),
    [
        ([], "/"),
        ({"version": 1, "machine": "m"}, "/"),
        ({"version": True, "machine": "m", "node": {"name": "n"}}, "/version"),
        ({"version": 1, "machine": "m\0", "node": {"name": "n"}}, "/machine"),
        ({"version": 1, "machine": "m", "node": {"name": "n", "cpus": "8"}}, "/node/cpus"),
        ({"version": 1, "machine": "m", "node": {"name": "n", "state": "odd"}}, "/node/state"),
        ({"version": 1, "machine": "m", "node": {"name": "n", "cpus": 2**63}}, "/node/cpus"),
        (
            {"version": 1, "machine": "m", "node": {"name": "n"}, "gpus": [{"gpu": 0, "power_w": INFINITE}]},
            "/gpus/0/power_w",
        ),
        ({"version": 1, "machine": "m", "node": {"name": "n"}, "leaving": INFINITE}, "/leaving"),
        ({"version": 1, "machine": "m", "node": {"name": "n"}, "attempts": {}}, "/attempts"),
    ],
)
def test_what_is_not_of_its_type_is_refused_with_its_place(raw: Any, place: str) -> None:
    with pytest.raises(BadMessage, match=f"^{place}: "):
        decode(Sync, raw)


def test_what_a_newer_side_adds_is_ignored() -> None:
    assert decode(NodeReport, {"name": "n", "colour": "red"}) == NodeReport("n")
