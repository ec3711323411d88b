"""Folders of jobs that have ended on a server: kept by a real agent, read, counted, and removed by retention."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
from pytest_django import Settings

from connections_app.agents.engine import AgentEngine
from connections_app.models import AgentAttempt
from engines.agent import condition
from engines.agent.agent import Agent
from engines.agent.condition import Conditions
from engines.agent.messages import Condition
from engines.agent.program import Program
from engines.local.engine import LocalEngine
from jobs_app.models import Job
from operations.job_file_retention import discard_files, jobs_with_files, measure_files
from tests.connections.test_agents import OverRest
from tests.played_agent import DESK, JOINING, Played, over
from tests.service_lab import Lab

pytestmark = pytest.mark.django_db
WRITES = "echo weights > model.pt"
CONDITION = Condition("0.1.9", "", "3.11.2")


@pytest.fixture
def lab(lab: Lab, settings: Settings, tmp_path: Path) -> Lab:
    settings.MOTLEY_AGENT_ROOT = tmp_path / "agents"
    return lab


class Server:
    """A server whose agent is the real one; it is away while it takes no turn."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self.lab, self.folder = lab, folder
        folder.mkdir()
        played = Played(lab, "gpu1", joining=replace(JOINING, gangs=True), site=True)
        self.engine = LocalEngine(folder / "engine", declared=["gpu1"])
        self.conditions = Conditions(Program.own())
        describe = partial(replace, DESK, name="gpu1")
        self.agent = Agent(
            folder, OverRest(played), self.engine, describe, notice=timedelta(), condition=self.conditions, site=True
        )

    def turn(self) -> None:
        self.agent.turn()
        self.agent._transfers.turn()  # a thread of its own does it otherwise

    def runs(self, job: Job) -> Job:
        def has_ended() -> bool:
            self.turn()
            job.refresh_from_db()
            return job.is_final

        self.lab.until(has_ended)
        self.lab.until(lambda: self.turn() or not self.engine.attempts())
        return job

    def has_file(self, job: Job) -> bool:
        return (self.folder / "engine" / "jobs" / str(job.pk) / "work" / "model.pt").exists()


@pytest.fixture
def server(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr("engines.agent.agent.machine_digest", lambda: "machine")
    monkeypatch.setattr(condition, "EVERY_S", 0.01)
    one, stopped = Server(lab, tmp_path / "server"), threading.Event()
    looks = threading.Thread(target=one.conditions.run, args=(stopped,), daemon=True)
    looks.start()
    yield one
    stopped.set()
    one.conditions._due.set()
    looks.join()


def test_what_a_job_left_on_a_server_is_removed_by_retention_when_the_server_is_back(lab: Lab, server: Server) -> None:
    job = server.runs(lab.submit(WRITES, gpu_types=["k80"]))
    assert (job.state, server.has_file(job)) == (Job.State.SUCCEEDED, True)
    jobs = Job.objects.filter(pk=job.pk)

    def is_measured() -> bool:
        server.turn()
        measure_files()
        return jobs.filter(files_bytes__gt=0).exists()

    lab.until(is_measured)
    assert jobs_with_files(lab.now + timedelta(days=1)).get() == job
    assert discard_files(jobs).rows == 0
    assert (server.has_file(job), AgentAttempt.objects.exists()) == (True, False)  # it was away
    lab.until(lambda: server.turn() or not server.has_file(job))


def test_a_folder_that_a_crash_has_left_is_removed(lab: Lab, server: Server) -> None:
    """As between the removal of an attempt and that of its job."""
    left = server.folder / "engine" / "jobs" / "11111111-1111-1111-1111-111111111111"
    (left / "work").mkdir(parents=True)
    (left.parent / "no-job").mkdir()
    lab.until(lambda: server.turn() or not left.exists())
    assert (left.parent / "no-job").exists()


def test_a_server_keeps_the_folder_of_the_attempt_with_which_a_job_ended_alone(lab: Lab) -> None:
    """A job that goes on has its files where it goes on; a volunteer's machine keeps none."""
    one = Played(lab, "gpu1", joining=replace(JOINING, gangs=True), site=True)
    job = lab.submit("sleep 60", gpu_types=["k80"], retries=1)
    first = one.given().launches[0].attempt
    orders = lab.until(lambda: found if (found := one.sync(over(first, lab))).forget else None)
    assert (orders.forget, orders.keep) == ((first,), ())
    second = one.given().launches[0].attempt
    ended = replace(over(second, lab), report=replace(over(second, lab).report, exit_code=0))
    orders = lab.until(lambda: found if (found := one.sync(ended)).forget else None)
    assert (orders.forget, orders.keep) == ((second,), (second,))
    again = one.sync(ended)  # that answer was lost
    assert (again.forget, again.keep) == ((second,), (second,))
    engine, wanted = AgentEngine("servers"), {str(job.pk): [first, second]}
    assert engine.sizes(wanted) == {}
    one.sync(condition=CONDITION, kept={str(job.pk): -1})
    assert engine.sizes(wanted) == {}
    assert one.sync(condition=CONDITION, kept={str(job.pk): 4096, "../etc": 1}).discard == ()
    assert engine.sizes(wanted) == {str(job.pk): 4096}
    engine.discard(wanted)
    assert engine.sizes(wanted) == {str(job.pk): 0}
    assert one.sync(condition=CONDITION, kept={str(job.pk): 4096}).discard == (str(job.pk),)
