"""An agent of which the test plays every message over REST."""

from copy import copy
from dataclasses import replace
from datetime import timedelta
from typing import Any, Self

from rest_framework.test import APIClient

from connections_app.agents.join_agent import issue_join_token
from connections_app.agents.sync import agents_known, nodes_leaving
from engines.agent.codec import decode, encode
from engines.agent.machine import Describe
from engines.agent.messages import VERSION, AttemptNews, Joining, Orders, Sync
from engines.protocol import AttemptReport, GpuReport, NodeReport, Phase
from tests.service_lab import Lab

DESK = NodeReport("joining", "k80", [GpuReport(0), GpuReport(1)], cpus=8, memory_mib=32_768)
JOINING = Joining(VERSION, "machine", "agent_secret", DESK, emulated=True, notice=timedelta(minutes=10))


class Played:
    """An agent whose every message is the test's."""

    def __init__(
        self, lab: Lab, name: str = "desk", *, trusted: bool = True, joining: Joining = JOINING, site: bool = False
    ) -> None:
        agents_known.forget()  # those of the test before
        nodes_leaving.forget()
        self.lab, self.name, self.token = lab, name, joining.token
        self.mark = self.address = ""
        self.agent, self.join_token = issue_join_token(name, trusted=trusted, actor=None, now=lab.now, site=site)
        self.joined = self.join(joining)

    def join(self, joining: Joining) -> int:
        return self.post("join", encode(joining), self.join_token)

    def sync(self, *news: AttemptNews, **more: Any) -> Orders:
        """Its next message and the answer, whose mark it keeps. Answers are compared without their marks."""
        told = Sync(
            VERSION,
            "machine",
            replace(DESK, name=self.name, address=self.address),
            attempts=news,
            heard=self.mark,
            **more,
        )
        answer = self.client().post("/api/v1/agent/sync", encode(told), format="json")
        assert answer.status_code == 200, answer.content
        orders = decode(Orders, answer.json())
        self.mark = orders.mark
        return replace(orders, mark="")

    def copy(self) -> Self:
        """The same machine once more, as of a cloned disk."""
        return copy(self)

    def post(self, path: str, body: Any, token: str) -> int:
        return self.client(token).post(f"/api/v1/agent/{path}", body, format="json").status_code

    def client(self, token: str = "") -> APIClient:
        client = APIClient()
        client.credentials(HTTP_AUTHORIZATION=f"Bearer {token or self.token}")
        return client

    def given(self) -> Orders:
        """What it is told as soon as it is given a launch."""
        return self.lab.until(lambda: orders if (orders := self.sync()).launches else None)


def machine_named(name: str) -> Describe:
    """Reports of the machine to a real agent."""

    def describe(*, has_work: bool) -> NodeReport:
        return replace(DESK, name=name)

    return describe


def running(attempt: int, lab: Lab) -> AttemptNews:
    return AttemptNews(AttemptReport(attempt, Phase.RUNNING, started_at=lab.now))


def over(attempt: int, lab: Lab, **more: Any) -> AttemptNews:
    report = AttemptReport(
        attempt, Phase.ENDED, proven_gone=True, exit_code=143, started_at=lab.now, ended_at=lab.now, **more
    )
    return AttemptNews(report, handed_over=True)
