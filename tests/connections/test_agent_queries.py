"""What machines that joined cost a turn of the engines' loop, in queries."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings

from accounting_app.gpu_watch.minutes import minute_of
from accounting_app.models import GpuMinute
from cluster_app.models import Engine, Node
from connections_app.agents.engine import _own_report
from connections_app.models import Agent
from engines.agent.codec import encode
from engines.agent.messages import AttemptNews
from engines.protocol import AttemptReport, NodeShare, Phase, Progress
from jobs_app.models import Attempt
from scheduler_app.round.dispatch import dispatch
from scheduler_app.round.reconcile import observe
from scheduler_app.round.watch_gpus import watch_gpus
from tests.played_agent import DESK, JOINING, Played, running
from tests.service_lab import Lab


class Machines:
    """Machines that joined, each with a job that runs on all of its GPUs."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.agents: list[Played] = []
        self.attempts: dict[str, AttemptNews] = {}
        self.steps = 0

    def join(self, count: int) -> None:
        for number in range(len(self.agents), count):
            joining = replace(JOINING, token=f"agent_{number}")
            self.agents.append(Played(self.lab, f"desk-{number}", joining=joining))
            self.lab.submit("sleep 60", gpu_types=["k80"], gpus=2)
        self.lab.until(self._all_run)

    def _all_run(self) -> bool:
        for agent in self.agents:
            for launch in agent.sync(*self._news_of(agent)).launches:
                self.attempts[agent.name] = running(launch.attempt, self.lab)
        return Attempt.objects.filter(state="running").count() == len(self.agents)

    def _news_of(self, agent: Played) -> list[AttemptNews]:
        return [self.attempts[agent.name]] if agent.name in self.attempts else []

    def queries_of_a_turn(self) -> int:
        """After a message of each, with a step that each job has reported."""
        self.steps += 1
        for agent in self.agents:
            (news,) = self._news_of(agent)
            progress = Progress(self.steps, 1, self.lab.now, self.steps, self.lab.now)
            agent.sync(replace(news, report=replace(news.report, progress=progress)))
        self.lab.ahead += timedelta(minutes=10)  # what is due at whole multiples of them is due in each turn
        fence, now = self.lab.fence, self.lab.now
        with CaptureQueriesContext(connection) as queries:
            observe(fence, now)
            dispatch(fence, now)
            watch_gpus(fence, now)
        assert GpuMinute.objects.filter(attempt__isnull=False, minute=minute_of(now)).count() == 2 * len(self.agents)
        assert set(Attempt.objects.values_list("reports", flat=True)) == {self.steps}
        assert set(Node.objects.values_list("heard_at", flat=True)) == {now}
        return len(queries)


@pytest.fixture
def machines(lab: Lab, settings: Settings, tmp_path: Path) -> Machines:
    settings.MOTLEY_AGENT_ROOT = tmp_path / "agents"
    return Machines(lab)


def test_a_turn_costs_as_many_queries_with_eight_machines_as_with_two(machines: Machines) -> None:
    machines.join(2)
    machines.queries_of_a_turn()
    few = machines.queries_of_a_turn()
    machines.join(8)
    machines.queries_of_a_turn()
    assert machines.queries_of_a_turn() == few


def test_a_message_without_news_costs_few_queries_and_its_report_is_read_once(lab: Lab) -> None:
    """200 idle servers send 40 messages a second."""
    server = Played(lab, "gpu1", joining=replace(JOINING, gangs=True), site=True)
    server.sync()
    with CaptureQueriesContext(connection) as queries:
        server.sync()
    assert len(queries) <= 6, [one["sql"][:200] for one in queries]
    observe(lab.fence, lab.now)
    read = _own_report.cache_info().misses
    server.sync()
    observe(lab.fence, lab.now)
    assert _own_report.cache_info().misses == read
    server.address = "10.0.0.7"
    server.sync()
    observe(lab.fence, lab.now)
    assert _own_report.cache_info().misses == read + 1


def test_a_message_of_a_running_job_costs_one_query_more(lab: Lab) -> None:
    """Shares and checkpoint times are read together: with both by themselves, 200 jobs cost the service half a core."""
    server = Played(lab, "gpu1", joining=replace(JOINING, gangs=True), site=True)
    lab.submit("sleep 60", gpu_types=["k80"], gpus=2)
    (launch,) = server.given().launches
    news = running(launch.attempt, lab)
    Attempt.objects.update(cpu_memory="tuned", cpus_per_gpu=3, memory_per_gpu_mib=1024)
    server.sync(news)
    with CaptureQueriesContext(connection) as queries:
        orders = server.sync(news)
    assert [one.share for one in orders.shares] == [NodeShare(6, 2048)]
    assert len(queries) <= 7, [one["sql"][:200] for one in queries]


def test_one_machine_whose_report_cannot_be_read_harms_no_other(machines: Machines) -> None:
    machines.join(2)
    Agent.objects.filter(name="desk-0").update(node_report={"gpus": "many"})
    Agent.objects.filter(name="desk-1").update(node_report=encode(replace(DESK, limits="a limit")))
    observe(machines.lab.fence, machines.lab.now)
    faults = dict(Engine.objects.filter(kind=Engine.Kind.AGENT).values_list("name", "fault"))
    assert (bool(faults["desk-0"]), faults["desk-1"]) == (True, "")
    assert Node.objects.get(name="desk-1").limits == "a limit"


def test_the_end_of_an_attempt_at_one_machine_is_stored_among_those_of_others(machines: Machines) -> None:
    machines.join(3)
    lab, agent = machines.lab, machines.agents[1]
    attempt = machines.attempts[agent.name].report.attempt
    ended = AttemptReport(attempt, Phase.ENDED, proven_gone=True, exit_code=0, started_at=lab.now, ended_at=lab.now)
    agent.sync(AttemptNews(ended, handed_over=True))
    observe(lab.fence, lab.now)
    states = {one.engine: one.state for one in Attempt.objects.all()}
    assert states == {"desk-0": "running", "desk-1": "ended", "desk-2": "running"}
