"""Rolling update of servers: which server changes next, and what its agent is told."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from audit_app.models import AuditEntry
from connections_app.agents.program import program_digest
from connections_app.agents.updates import Server, next_to_update, program_for, try_update_again, update_fault_of
from connections_app.errors import AgentRefused
from connections_app.models import Agent
from engines.agent.messages import Condition
from tests.connections.test_gang_rows import server as server_row
from tests.played_agent import JOINING, Played
from tests.service_lab import Lab

NEW, OLD = "b" * 12, "a" * 12


def server(pk: int, program: str = OLD, told: str = "", *, is_heard: bool = True) -> Server:
    return Server(pk, program, told, is_heard)


@pytest.mark.parametrize(
    ("servers", "chosen"),
    [
        ([], None),
        ([server(1, NEW), server(2, NEW)], None),
        ([server(1), server(2)], 1),
        ([server(1, NEW, NEW), server(2)], 2),
        ([server(1, OLD, NEW), server(2)], None),
        ([server(1, is_heard=False), server(2)], 2),
        ([server(1, OLD, "c" * 12), server(2)], 1),
    ],
)
def test_one_server_changes_at_a_time_and_one_that_goes_back_stops_the_update(
    servers: list[Server], chosen: int | None
) -> None:
    assert next_to_update(servers, NEW) == chosen


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ({"program": OLD, "update_to": NEW}, NEW),
        ({"program": NEW, "update_to": NEW}, ""),
        ({"program": OLD, "update_to": NEW, "update_fault": f"The program {NEW} was not heard"}, ""),
        ({"program": OLD, "update_to": NEW, "update_fault": f"The program {OLD} was not heard"}, NEW),
        ({"program": OLD, "update_to": NEW, "site": False}, ""),
    ],
)
def test_an_agent_is_told_until_it_has_changed_or_failed(columns: dict[str, str], told: str) -> None:
    assert program_for(Agent(name="gpu1", **{"site": True} | columns)) == told


def test_a_server_that_was_told_and_is_not_heard_is_named() -> None:
    at = datetime(2026, 11, 28, 12, 0, tzinfo=UTC)
    agent = Agent(name="gpu1", program=OLD, update_to=NEW, update_at=at)
    assert update_fault_of(agent, at + timedelta(minutes=10)) == ""
    assert update_fault_of(agent, at + timedelta(minutes=20)).startswith(
        "It was told at 12:00 on 28 November to change"
    )
    agent.program = NEW
    assert update_fault_of(agent, at + timedelta(minutes=20)) == ""


def test_servers_change_one_after_the_other(lab: Lab) -> None:
    """As the agents hear it: the second when the first says that it runs the program of the service."""
    condition = Condition("0.1.9", OLD, "3.11.2")
    one, two = (
        Played(lab, name, joining=replace(JOINING, gangs=True, token=f"agent_{name}"), site=True)
        for name in ("gpu1", "gpu2")
    )
    for server in (one, two):
        server.sync(condition=condition)
    assert lab.until(lambda: one.sync().program) == program_digest()
    assert two.sync().program == ""
    one.sync(condition=replace(condition, program=program_digest()))
    assert lab.until(lambda: two.sync().program) == program_digest()
    assert one.sync().program == ""


def test_a_message_with_a_fault_is_not_answered_with_the_order_once_more(lab: Lab) -> None:
    condition = Condition("0.1.9", OLD, "3.11.2")
    one = Played(lab, "gpu1", joining=replace(JOINING, gangs=True), site=True)
    one.sync(condition=condition)
    program = lab.until(lambda: one.sync().program)
    fault = f"The program {program} was not heard within 60 s, and was taken back."
    assert one.sync(condition=replace(condition, update_fault=fault)).program == ""


def test_an_update_that_failed_is_tried_again_when_an_administrator_asks(lab: Lab) -> None:
    """What the agent says of the try before that does not end it; the other servers wait for this one meanwhile."""
    condition = Condition("0.1.9", OLD, "3.11.2", tries=0)
    one = Played(lab, "gpu1", joining=replace(JOINING, gangs=True), site=True)
    one.sync(condition=condition)
    program = lab.until(lambda: one.sync().program)
    failed = replace(condition, update_fault=f"The program {program} could not be used: no space")
    assert one.sync(condition=failed).program == ""
    root = lab.user("root", staff=True)
    try_update_again(one.agent, actor=root)
    orders = one.sync(condition=failed)
    assert (orders.program, orders.tries) == (program, 1)
    assert one.sync(condition=replace(failed, tries=1)).program == ""
    assert one.sync(condition=replace(failed, tries=None)).program == ""  # an older agent does not try: its fault stays
    entry = AuditEntry.objects.get(action="server.update")
    assert (entry.actor_name, entry.target, "no space" in entry.message) == ("root", "gpu1", True)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"program": ""}, "run the line of Add a server there once more"),
        ({"program": program_digest(), "update_to": program_digest()}, "runs the program of the service already"),
        ({}, "has not been told to change yet"),
        ({"left_at": datetime(2026, 11, 28, tzinfo=UTC)}, "is no server that works here"),
    ],
)
def test_a_server_without_a_failed_update_is_not_told_to_try_again(columns: dict[str, object], said: str) -> None:
    agent = server_row("gpu1")
    Agent.objects.update(**{"program": OLD} | columns)
    with pytest.raises(AgentRefused, match=said):
        try_update_again(agent, actor=None)
    assert not AuditEntry.objects.exists()
