"""What plans rounds for a request has slots: pages stay quick whoever asks how much."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from django.contrib.auth.models import User
from django.test import Client
from pytest_django import Settings

from insight_app.errors import TooManySolves
from insight_app.explain import solve_slots as module
from insight_app.explain.solve_slots import MOST_WAITING, SolveSlots
from jobs_app.models import Job
from tests.deployment import wait_for
from tests.rest_callers import caller
from tests.service_lab import Lab

ADA, BOB, EVE = (User(pk=pk) for pk in (1, 2, 3))


@pytest.fixture
def slots(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> SolveSlots:
    settings.MOTLEY_SOLVES = 1
    return SolveSlots()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(MOST_WAITING + 2) as pool:
        yield pool


def wait_for_a_slot(slots: SolveSlots, user: User) -> str:
    with slots.slot_for(user):
        return f"{user.pk} had it"


def test_the_next_user_waits_until_a_slot_is_free(slots: SolveSlots, pool: ThreadPoolExecutor) -> None:
    with slots.slot_for(ADA):
        waiting = pool.submit(wait_for_a_slot, slots, BOB)
        wait_for("it waits", lambda: slots._waiting == [BOB.pk])
        assert not waiting.done()
    assert waiting.result() == "2 had it"


def test_a_user_has_one_slot_and_waits_with_one_request(
    slots: SolveSlots, pool: ThreadPoolExecutor, settings: Settings
) -> None:
    settings.MOTLEY_SOLVES = 3
    with slots.slot_for(ADA):
        second = pool.submit(wait_for_a_slot, slots, ADA)
        wait_for("it waits", lambda: slots._waiting == [ADA.pk])
        with pytest.raises(TooManySolves), slots.slot_for(ADA):
            raise AssertionError("a third was let in")
        assert wait_for_a_slot(slots, BOB) == "2 had it"
    assert second.result() == "1 had it"


def test_no_more_than_so_many_wait(slots: SolveSlots, pool: ThreadPoolExecutor) -> None:
    with slots.slot_for(ADA):
        waiting: list[Future[str]] = [
            pool.submit(wait_for_a_slot, slots, User(pk=10 + number)) for number in range(MOST_WAITING)
        ]
        wait_for("it waits", lambda: len(slots._waiting) == MOST_WAITING)
        with pytest.raises(TooManySolves), slots.slot_for(EVE):
            raise AssertionError("a fifth waits")
    assert all(one.result() for one in waiting)


def test_who_waits_too_long_is_refused(slots: SolveSlots, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LONGEST_WAIT_S", 0.01)
    with slots.slot_for(ADA), pytest.raises(TooManySolves), slots.slot_for(BOB):
        raise AssertionError("two were let in")
    assert slots._waiting == []


def test_a_slot_comes_back_after_an_error(slots: SolveSlots) -> None:
    with pytest.raises(ZeroDivisionError), slots.slot_for(ADA):
        raise ZeroDivisionError
    assert wait_for_a_slot(slots, ADA) == "1 had it"


def test_a_request_without_a_slot_is_answered_503_and_the_page_says_why(
    lab: Lab, plain_static: None, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.MOTLEY_SOLVES = 1
    monkeypatch.setattr(module, "LONGEST_WAIT_S", 0.01)
    lab.node("n1", gpus=1)
    job = lab.submit()
    Job.objects.filter(pk=job.pk).update(state=Job.State.QUEUED)
    browser = Client()
    browser.force_login(lab.user())
    ada = caller(lab.user())
    with module.solve_slots.slot_for(lab.user("bob")):
        answer = ada.get(f"/api/v1/jobs/{job.pk}/explain?would_start=true")
        page = browser.get(f"/jobs/{job.pk}/would-start")
    assert (answer.status_code, answer.json()["code"], answer.headers["Retry-After"]) == (503, "too_many_solves", "5")
    assert (page.status_code, "try again" in page.content.decode()) == (503, True)
    assert ada.get(f"/api/v1/jobs/{job.pk}/explain?would_start=true").status_code == 200
