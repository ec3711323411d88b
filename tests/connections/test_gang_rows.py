"""Gangs over servers as their rows say: ranks of a test of the engine, which is the shortest way to a gang."""

from datetime import datetime, timedelta
from uuid import UUID

import pytest
from django.utils import timezone
from pytest_django import Settings

from cluster_app.models import Engine
from connections_app.agents import gangs, silence
from connections_app.agents.gangs import EndOfGang, Go, gangs_to_advance, steps_of
from connections_app.models import Agent, AgentAttempt, EngineProbe

pytestmark = pytest.mark.django_db
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
    monkeypatch.setattr(gangs, "first_ready", {})
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
