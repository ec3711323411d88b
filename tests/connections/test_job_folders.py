"""Folders of jobs that have ended on a server: kept by a real agent, read, counted, and removed by retention."""

import errno
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest
from pytest_django import Settings

from connections_app.agents.engine import AgentEngine
from connections_app.models import AgentAttempt
from engines.agent import condition
from engines.agent.agent import Agent
from engines.agent.condition import Conditions
from engines.agent.jobs_of_others import Owner, leave_to_others, note_owner
from engines.agent.messages import Condition
from engines.agent.program import Program
from engines.attempt_files import write_json
from engines.job_files import MOST_BYTES
from engines.local.engine import LocalEngine
from jobs_app.models import Job
from operations.job_file_retention import discard_files, jobs_with_files, measure_files
from tests.connections.test_agents import OverRest
from tests.played_agent import JOINING, Played, machine_named, over, running
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
        self.connection = OverRest(played)
        self.start()

    def start(self) -> None:
        """An agent, as after a restart of the process."""
        describe, folder = machine_named("gpu1"), self.folder
        self.agent = Agent(
            folder, self.connection, self.engine, describe, notice=timedelta(), condition=self.conditions, site=True
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


def test_a_folder_that_is_not_there_any_more_has_no_bytes(lab: Lab, server: Server) -> None:
    """Somebody has removed it by hand before it was measured; one that is there again is measured then."""
    job = server.runs(lab.submit(WRITES, gpu_types=["k80"]))
    folder, away = server.folder / "engine" / "jobs" / str(job.pk), server.folder / "away"
    folder.rename(away)

    def is_measured() -> bool:
        AgentAttempt.objects.filter(kept_bytes__gt=0).update(kept_bytes=None)  # one from before may still have come
        server.turn()
        return AgentAttempt.objects.filter(kept_bytes=0).exists()

    lab.until(is_measured)
    away.rename(folder)
    lab.until(lambda: server.turn() or AgentAttempt.objects.filter(kept=True, kept_bytes__gt=0).exists())
    assert folder.exists()


def test_only_folders_that_a_message_would_name_are_missing(lab: Lab) -> None:
    """It names some of them, in their order; what runs there, and what an older agent leaves out, may be there."""
    one, now = Played(lab, "gpu1", joining=replace(JOINING, gangs=True), site=True), lab.now
    jobs = [UUID(int=number << 64) for number in range(1, 6)]
    for attempt, job in enumerate(jobs, 1):
        facts = {"forgotten": attempt != 3, "kept": True, "delivered_at": now}
        AgentAttempt.objects.create(agent=one.agent, attempt=attempt, job=job, **facts)

    def missing(**told: object) -> list[int]:
        AgentAttempt.objects.update(kept_bytes=None)
        one.sync(running(3, lab), condition=CONDITION, **told)
        return [*AgentAttempt.objects.filter(kept_bytes=0).order_by("attempt").values_list("attempt", flat=True)]

    fourth = {str(jobs[3]): 4096}
    assert missing(kept=fourth) == []
    assert missing(kept=fourth, kept_after="") == [1, 2]
    assert missing(kept=fourth, kept_after=str(jobs[0])) == [2]
    assert missing(kept=fourth, kept_after=str(jobs[3]), kept_to_the_end=True) == [5]
    assert missing(kept={}, kept_after="") == []
    assert missing(kept={}, kept_after="", kept_to_the_end=True) == [1, 2, 4, 5]


def test_a_size_that_no_folder_has_is_stored_as_the_most(lab: Lab) -> None:
    one = Played(lab, "gpu1", joining=replace(JOINING, gangs=True), site=True)
    job = lab.submit(WRITES, gpu_types=["k80"])
    AgentAttempt.objects.create(agent=one.agent, attempt=7, job=job.pk, forgotten=True, kept=True)
    one.sync(condition=CONDITION, kept={str(job.pk): 2**63 - 1})
    assert AgentAttempt.objects.get(attempt=7).kept_bytes == MOST_BYTES


def test_folders_of_another_service_stay_when_a_server_joins_this_one(lab: Lab, server: Server) -> None:
    """And those of this one, under another address, do not: it knows which are to go."""
    other, this = (Owner(url=f"https://{name}.example.org", service=name) for name in ("other", "this"))
    theirs, own = (server.folder / "engine" / "jobs" / f"{digit * 8}-1111-1111-1111-111111111111" for digit in "12")
    theirs.mkdir(parents=True)
    note_owner(server.folder, other["url"])
    assert leave_to_others(server.folder, this) == [theirs.name]
    own.mkdir()
    assert leave_to_others(server.folder, Owner(url="https://new.example.org", service="this")) == []
    server.start()
    lab.until(lambda: server.turn() or not own.exists())
    assert theirs.exists()


class FullDisk:
    """A disk on which the mark of an answer does not fit, as there is no room for a file."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_full = False
        monkeypatch.setattr("engines.agent.marks.write_json", self.write)

    def write(self, path: Path, content: object) -> None:
        if self.is_full:
            raise OSError(errno.ENOSPC, "No space left on device")
        write_json(path, content)


def test_a_server_with_a_full_disk_obeys_and_starts_nothing(
    lab: Lab, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = FullDisk(monkeypatch)
    left = server.folder / "engine" / "jobs" / "11111111-1111-1111-1111-111111111111"
    server.turn()
    left.mkdir(parents=True)
    disk.is_full = True
    lab.until(lambda: server.turn() or not left.exists())
    job = lab.submit(WRITES, gpu_types=["k80"])
    lab.until(lambda: server.turn() or AgentAttempt.objects.filter(delivered_at__isnull=False).exists())
    assert not server.engine.attempts()
    disk.is_full = False
    assert server.runs(job).state == Job.State.SUCCEEDED


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
