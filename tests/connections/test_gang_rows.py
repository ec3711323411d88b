"""Gangs over servers as their rows say: ranks of a test of the engine, which is the shortest way to a gang."""

import re
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from pytest_django import Settings

from cluster_app.models import Engine
from connections_app.agents import gangs, silence, sync
from connections_app.agents.after_restore import UNKNOWN_ATTEMPTS
from connections_app.agents.engine import AgentEngine
from connections_app.agents.gangs import Cause, EndOfGang, Go, gangs_to_advance, steps_of, take_step
from connections_app.agents.uploads import attempt_folder
from connections_app.models import Agent, AgentAttempt, EngineProbe
from engines.protocol import Launch, NodeLaunch
from jobs_app.models import Attempt
from operations.restore import skip_used_numbers, stop_strays
from scheduler_app.round import store_node_reports
from scheduler_app.round.store_node_reports import advance_gangs
from tests.played_agent import JOINING, Played
from tests.service_lab import Lab

pytestmark = pytest.mark.django_db
TABLE = re.compile(r'(?:FROM|UPDATE) "(\w+)"')
LONG_AGO = timedelta(seconds=150)


class Clock:
    """The monotonic clock of the service's process."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """That of a process that has just begun."""
    clock = Clock()
    for module in (gangs, silence):
        monkeypatch.setattr(module, "monotonic", clock)
    monkeypatch.setattr(gangs, "first_known", {})
    monkeypatch.setattr(silence, "last_news", {})
    return clock


def server(name: str, *, heard_at: datetime | None = None) -> Agent:
    engine, _ = Engine.objects.get_or_create(name="servers", kind=Engine.Kind.SERVERS)
    return Agent.objects.create(
        name=name,
        site=True,
        join_trusted=True,
        trusted=True,
        engine=engine,
        digest=name,
        join_digest=name,
        join_expires_at=timezone.now(),
        told=1,
        heard_at=heard_at or timezone.now(),
    )


def gang_of(*agents: Agent, ready: tuple[datetime | None, ...]) -> int:
    """The attempt, whose servers are ready since then."""
    probe = EngineProbe.objects.create(engine=agents[0].engine, launched_at=timezone.now())
    for rank, agent in enumerate(agents):
        AgentAttempt.objects.create(
            agent=agent,
            attempt=probe.attempt,
            rank=rank,
            ranks=len(agents),
            job=UUID(int=0),
            delivered_at=timezone.now(),
            ready_at=ready[rank],
        )
    return probe.attempt


def hear(agent: Agent) -> None:
    agent.told += 1
    agent.heard_at = timezone.now()
    agent.save()


def step() -> Go | EndOfGang | None:
    return next(iter(steps_of(gangs_to_advance()).values()), None)


def test_a_service_that_was_restarted_starts_no_gang_on_a_server_that_fell_silent_before(
    clock: Clock, settings: Settings
) -> None:
    """It knows of no silence then, but finds that the last message is old."""
    settings.MOTLEY_GANG_READY_S = 100
    here, gone = server("gpu1"), server("gpu2", heard_at=timezone.now() - LONG_AGO)
    gang_of(here, gone, ready=(timezone.now() - LONG_AGO,) * 2)
    assert step() is None
    clock.now_s += 100
    hear(here)
    end = step()
    assert isinstance(end, EndOfGang)
    assert end.note == "gpu2 was ready, and not heard any more 100 s after the first was ready."
    hear(gone)
    assert step() == Go()


def test_the_silence_of_a_server_counts_from_the_moment_that_a_rank_was_given_to_it(
    clock: Clock, settings: Settings
) -> None:
    """A server that has just fallen silent may be heard again: its next job is not lost at once."""
    settings.MOTLEY_AGENT_LEASE_S = 20
    agent = server("gpu1")
    assert silence.silent_s(agent) == 0
    clock.now_s += 9
    gang_of(agent, ready=(None,))
    assert step() is None
    clock.now_s += 9
    assert step() is None
    clock.now_s += 2
    end = step()
    assert isinstance(end, EndOfGang)
    assert end.note == "gpu1 has not been heard for 11 s."


def test_a_silent_server_has_the_lease_that_it_was_given_whatever_the_setting_is_now(
    clock: Clock, settings: Settings, lab: Lab
) -> None:
    """Its jobs run until then: a service that is started again with a shorter lease must not start them elsewhere."""
    agent = Played(lab, "gpu1", site=True, joining=replace(JOINING, gangs=True))
    agent.sync()
    agent.sync()
    settings.MOTLEY_AGENT_LEASE_S = 15
    row = Agent.objects.get(name="gpu1")
    assert not silence.lease_is_over(row)
    clock.now_s += 1.25 * 15 + 1
    assert not silence.lease_is_over(row)
    clock.now_s += 1.25 * 240
    assert silence.lease_is_over(row)
    for _ in range(2):  # it shows that it has had an answer with the new one
        agent.sync()
    row = Agent.objects.get(name="gpu1")
    assert not silence.lease_is_over(row)
    clock.now_s += 1.25 * 15 + 1
    assert silence.lease_is_over(row)


def test_a_restore_waits_for_no_test_of_a_server_that_does_not_answer() -> None:
    """No command reaches the server before the service starts; its lease has expired by then."""
    gang_of(server("gpu1"), ready=(None,))
    assert stop_strays(patience_s=0) == []


def test_attempts_after_a_restore_have_no_number_of_a_machine_that_joined_after_the_backup(lab: Lab) -> None:
    """It joins anew, and its agent finds the files of its attempts."""
    lab.node("n1")
    before = lab.attempt(lab.submit(), state="running", started_at=lab.now)
    skip_used_numbers(had_machines=True)
    after = lab.attempt(lab.submit(), state="running", started_at=lab.now)
    assert after.pk == before.pk + UNKNOWN_ATTEMPTS + 1


@pytest.mark.parametrize("moved", [timedelta(hours=-1), timedelta(minutes=10)], ids=["back", "ahead"])
def test_a_step_of_the_clock_neither_withdraws_a_gang_nor_keeps_its_gpus(clock: Clock, moved: timedelta) -> None:
    one, other = server("gpu1"), server("gpu2")
    gang_of(one, other, ready=(timezone.now() - moved, None))
    assert step() is None
    clock.now_s += 299
    for agent in (one, other):
        hear(agent)
    assert step() is None
    clock.now_s += 1
    end = step()
    assert isinstance(end, EndOfGang)
    assert end.note == "gpu2 was still preparing its rank 300 s after the first was ready."


def test_a_rank_that_was_launched_anew_is_not_ready_since_before(clock: Clock) -> None:
    one, other = server("gpu1"), server("gpu2")
    gang_of(one, other, ready=(timezone.now(), None))
    assert step() is None
    AgentAttempt.objects.update(ready_at=None)
    clock.now_s += 300
    for agent in (one, other):
        hear(agent)
    assert step() is None
    AgentAttempt.objects.filter(rank=0).update(ready_at=timezone.now())
    assert step() is None


def test_a_report_that_cannot_be_read_stops_no_other_gang(clock: Clock, lab: Lab) -> None:
    """As a release of before has left it; the server that is heard says it anew."""
    one, other = server("gpu1"), server("gpu2")
    unreadable, whole = (gang_of(one, other, ready=(timezone.now(),) * 2) for _ in range(2))
    AgentAttempt.objects.filter(attempt=unreadable, rank=0).update(report={"phase": "of another release"})
    advance_gangs(lab.fence, lab.now)
    assert {row.attempt for row in AgentAttempt.objects.exclude(go_at=None)} == {unreadable, whole}
    assert not AgentAttempt.objects.exclude(cause="").exists()


def test_a_gang_that_cannot_be_written_stops_no_other(
    clock: Clock, lab: Lab, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    one, other = server("gpu1"), server("gpu2")
    broken, whole = (gang_of(one, other, ready=(timezone.now(),) * 2) for _ in range(2))

    def take(attempt: int, *given: Any, **more: Any) -> None:
        if attempt == broken:
            raise ValueError("it cannot be written")
        take_step(attempt, *given, **more)

    monkeypatch.setattr(store_node_reports, "take_step", take)
    advance_gangs(lab.fence, lab.now)
    assert {row.attempt for row in AgentAttempt.objects.exclude(go_at=None)} == {whole}
    assert f"the gang of attempt {broken} could not be started or ended" in caplog.text


def test_an_agent_is_locked_before_its_rows_as_by_its_messages(clock: Clock) -> None:
    """The other order is a deadlock with a message that comes at the same time."""
    one, other = server("gpu1"), server("gpu2")
    attempt = gang_of(one, other, ready=(timezone.now(), None))
    end = EndOfGang(1, Cause.NOT_READY, "gpu2 was still preparing its rank")
    with CaptureQueriesContext(connection) as asked, transaction.atomic():
        take_step(attempt, end, grace_s=0, now=timezone.now())
    tables = [found[1] for one in asked.captured_queries if (found := TABLE.search(one["sql"]))]
    assert tables[0] == Agent._meta.db_table
    assert Agent.objects.get(name="gpu2").fault == end.note


def launch_of(attempt: int) -> Launch:
    return Launch(attempt, job=str(UUID(int=0)), command="true", tasks=[NodeLaunch("gpu1", {})])


def test_what_tests_of_before_have_left_is_removed_by_the_next_one(settings: Settings, tmp_path: Path) -> None:
    """Rows, though a server that is gone has forgotten nothing, and logs; not those of a test that goes on."""
    settings.MOTLEY_AGENT_ROOT = tmp_path
    one = server("gpu1")
    ended, live, new = (gang_of(one, ready=(None,)) for _ in range(3))
    AgentAttempt.objects.filter(attempt=new).delete()
    EngineProbe.objects.filter(pk=-ended).update(ended_at=timezone.now())
    for attempt in (ended, live):
        attempt_folder(attempt).path.mkdir(parents=True)
    AgentEngine("servers").launch(launch_of(new))
    assert {row.attempt for row in AgentAttempt.objects.all()} == {live, new}
    assert [attempt_folder(attempt).path.exists() for attempt in (ended, live)] == [False, True]


def test_rows_of_a_server_that_is_gone_are_removed_with_the_files_of_the_job(lab: Lab) -> None:
    lab.node("gpu1")
    job = lab.submit("true")
    ended = {
        "state": Attempt.State.ENDED,
        "outcome": Attempt.Outcome.SUCCEEDED,
        "ended_at": timezone.now(),
        "gone_at": timezone.now(),
    }
    gone, live = (lab.attempt(job, engine="servers", **more) for more in (ended, {}))
    for attempt in (gone, live):
        AgentAttempt.objects.create(agent=server(f"gpu{attempt.pk}"), attempt=attempt.pk, job=job.pk)
    AgentEngine("servers").discard({str(job.pk): [gone.pk, live.pk]})
    assert [row.attempt for row in AgentAttempt.objects.all()] == [live.pk]


def test_an_agent_whose_rank_waits_for_others_asks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pause of two hundred servers is long, and the word for a gang to start would wait for it."""
    monkeypatch.setattr(sync, "AGENTS_PER_SECOND", 0.1)
    sync.agents_known.forget()
    agent, now = server("gpu1"), timezone.now()
    row = AgentAttempt(agent=agent, attempt=7, job=UUID(int=0), ready_at=now)
    pauses = [sync._pause([replaced]) for replaced in (row, AgentAttempt(ready_at=now, go_at=now), AgentAttempt())]
    longest = timedelta(seconds=sync.LONGEST_PAUSE_S)
    assert pauses == [timedelta(seconds=1), longest, longest]
