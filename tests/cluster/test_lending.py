"""A machine that its owner lends at some hours: drained before they end, back in service when they begin."""

from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

import pytest
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.test import Client
from django.urls import reverse
from pytest_django import Settings

from accounting_app.energy.wake import read_pools
from cluster_app.errors import NotLentNow
from cluster_app.lending import Window, window_changes
from cluster_app.models import Node
from cluster_app.services import cordon, drain, follow_windows, note_awake, note_drained, put_to_sleep, resume
from tests.rest_callers import Scope, caller
from tests.service_lab import Lab

NIGHT, DAY = Window(time(19), time(7), ZoneInfo("UTC")), Window(time(9), time(17), ZoneInfo("UTC"))
STATE = Node.State


@pytest.mark.parametrize(
    ("window", "at", "hours"),
    [
        (NIGHT, time(18, 59, 59), 0),
        (NIGHT, time(19), 12),
        (NIGHT, time(0), 7),
        (NIGHT, time(7), 0),
        (NIGHT, time(12), 0),
        (DAY, time(8, 59), 0),
        (DAY, time(9), 8),
        (DAY, time(16), 1),
        (DAY, time(17), 0),
        (DAY._replace(zone=ZoneInfo("Asia/Kolkata")), time(3, 30), 8),
    ],
)
def test_so_long_is_left_of_a_window(window: Window, at: time, hours: float) -> None:
    moment = datetime.combine(date(2026, 11, 24), at, UTC)
    assert window.left(moment) == timedelta(hours=hours)


BERLIN = ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize(
    ("window", "at", "minutes"),
    [
        (Window(time(22), time(2, 30), BERLIN), "2026-10-25T02:00+02:00", 30),
        (Window(time(22), time(2, 30), BERLIN), "2026-10-25T02:10+01:00", 0),  # it was given back an hour ago
        (Window(time(22), time(3, 30), BERLIN), "2026-03-29T01:30+01:00", 60),  # there is no hour from 2 to 3
        (Window(time(1), time(4), BERLIN), "2026-10-25T01:00+02:00", 240),
    ],
)
def test_in_the_nights_in_which_clocks_are_set_real_time_counts(window: Window, at: str, minutes: int) -> None:
    assert window.left(datetime.fromisoformat(at)) == timedelta(minutes=minutes)


@pytest.fixture
def lent(lab: Lab) -> Node:
    """A node that is lent at night, and wants two minutes' notice."""
    node = lab.node("n1")
    lend_at_night(notice_s=120)
    return node


def lend_at_night(*, notice_s: int) -> None:
    """With the notice of a whole day it is never lent, whatever the time is."""
    window = {"lent_from": NIGHT.begins, "lent_until": NIGHT.ends}
    Node.objects.update(**window, notice_s=notice_s, capacity_type="volunteer")


def at(hour: int, minute: int = 0) -> datetime:
    return datetime(2026, 11, 24, hour, minute, tzinfo=UTC)


def state_at(node: Node, now: datetime) -> str:
    follow_windows(window_changes(now), now)
    node.refresh_from_db()
    return node.state


def test_it_is_drained_the_notice_before_its_hours_end_and_returns_when_they_begin(lent: Node) -> None:
    assert state_at(lent, at(6, 57)) == STATE.READY
    assert state_at(lent, at(6, 58)) == STATE.DRAINING
    assert lent.reason == "Given back to its owner: it is lent from 19:00 to 07:00 (UTC)"
    note_drained([lent])
    assert state_at(lent, at(18, 59)) == STATE.DRAINED
    assert state_at(lent, at(19)) == STATE.READY
    assert lent.reason == ""
    assert list(lent.events.values_list("kind", "message"))[:3] == [
        ("resumed", "lent again"),
        ("emptied", ""),
        ("drained", "Given back to its owner: it is lent from 19:00 to 07:00 (UTC)"),
    ]


@pytest.mark.parametrize(("verb", "state"), [(cordon, STATE.CORDONED), (drain, STATE.DRAINING)])
def test_a_node_that_a_person_took_out_stays_out(lent: Node, verb, state: str) -> None:
    verb(lent, reason="bad fan", actor=None)
    assert state_at(lent, at(12)) == state
    assert state_at(lent, at(20)) == state
    assert lent.reason == "bad fan"


def test_one_that_a_person_takes_out_while_it_is_back_with_its_owner_stays_out(lent: Node) -> None:
    state_at(lent, at(12))
    drain(lent, reason="bad fan", actor=None)
    assert state_at(lent, at(20)) == STATE.DRAINING


def test_without_its_window_it_returns_at_once(lent: Node) -> None:
    state_at(lent, at(12))
    Node.objects.update(lent_from=None, lent_until=None)
    assert state_at(lent, at(12)) == STATE.READY


def test_with_a_time_zone_that_this_machine_does_not_know_it_is_not_lent(lent: Node) -> None:
    Node.objects.update(lent_zone="Europe/Atlantis")
    assert state_at(lent, at(20)) == STATE.DRAINING
    assert lent.reason == "Given back to its owner: it is lent from 19:00 to 07:00 (Europe/Atlantis)"


def test_one_that_sleeps_is_woken_for_its_owner_and_takes_no_job_then(lent: Node) -> None:
    assert put_to_sleep(lent, reason="not needed", now=at(6))
    assert state_at(lent, at(7)) == STATE.WAKING
    note_awake(lent, at(7, 5))
    lent.refresh_from_db()
    assert (lent.state, lent.given_back) == (STATE.DRAINING, True)
    assert list(lent.events.values_list("kind", flat=True))[:2] == ["drained", "awake"]
    assert state_at(lent, at(19)) == STATE.READY


def test_no_job_wakes_it_while_its_owner_has_it(lent: Node, settings: Settings) -> None:
    settings.MOTLEY_NODE_SLEEP = settings.MOTLEY_NODE_WAKE = "true"
    Node.objects.update(health=Node.Health.HEALTHY)
    put_to_sleep(lent, reason="not needed", now=at(6))
    assert {*read_pools(at(6)).asleep} == {"n1"}
    assert not read_pools(at(8)).asleep


def test_it_cannot_be_resumed_while_its_owner_has_it(lent: Node) -> None:
    Node.objects.update(given_back=True, state=STATE.DRAINED, reason="given back", notice_s=86_400)
    lent.refresh_from_db()
    with pytest.raises(NotLentNow, match=r"n1 is lent from 19:00 to 07:00 \(UTC\), and returns by itself: change"):
        resume(lent, actor=None)


def test_each_door_says_why_it_cannot_be_resumed(lab: Lab, lent: Node, plain_static: None) -> None:
    Node.objects.update(given_back=True, state=STATE.DRAINED, reason="given back", notice_s=86_400)
    staff = lab.user("root", staff=True)
    answer = caller(staff, Scope.ADMIN).post(f"/api/v1/nodes/{lent.name}/resume")
    assert (answer.status_code, answer.json()["code"]) == (409, "node_not_lent_now")
    client = Client()
    client.force_login(staff)
    page = client.post(reverse("act-on-node", args=[lent.name, "resume"]), follow=True)
    assert "returns by itself" in page.content.decode()
    assert "from 19:00 to 07:00 (UTC)" in client.get(reverse("node", args=[lent.name])).content.decode()


@pytest.mark.parametrize(
    ("columns", "field", "words"),
    [
        ({"lent_from": time(1)}, "lent_until", "Give both times"),
        ({"lent_until": time(1)}, "lent_from", "Give both times"),
        ({"lent_from": time(1), "lent_until": time(1)}, "lent_until", "the same"),
        ({"lent_zone": "Europe/Atlantis"}, "lent_zone", "Europe/Atlantis is no time zone of the tz database"),
    ],
)
def test_half_a_window_is_refused(lab: Lab, columns: dict[str, object], field: str, words: str) -> None:
    node = lab.node("n1")
    for name, value in columns.items():
        setattr(node, name, value)
    with pytest.raises(ValidationError) as refused:
        node.full_clean()
    assert words in refused.value.message_dict[field][0]


def test_its_jobs_leave_and_are_told_why(lab: Lab) -> None:
    node = lab.node("n1")
    job = lab.submit("sleep 60")
    lab.running(job)
    lend_at_night(notice_s=86_400)
    lab.until(lambda: lab.attempts(job)[0].stop_reason == "drain")
    node.refresh_from_db()
    assert node.given_back
    assert "Given back to its owner" in lab.attempts(job)[0].stop_note


def test_other_users_see_its_hours_over_rest(lab: Lab, lent: Node) -> None:
    shown = caller(User.objects.create(username="eve")).get(f"/api/v1/nodes/{lent.name}").json()
    assert (shown["lent_from"], shown["lent_until"], shown["lent_zone"]) == ("19:00:00", "07:00:00", "UTC")
