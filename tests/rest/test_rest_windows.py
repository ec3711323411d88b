"""Windows of nodes over REST and in the administration: what is taken, what is refused with a word, and who may."""

import json
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from rest_framework.test import APIClient

from audit_app.models import AuditEntry
from cluster_app.models import Node
from scheduler_app.models import TimeWindow
from tests.rest_callers import Scope, caller
from tests.service_lab import Lab

WINDOWS = "/api/v1/windows"
HOUR = timedelta(hours=1)
RESERVATION = {"team": "vision", "gpu_type": "A100", "gpus": 2}


@pytest.fixture
def admin(cluster: Lab) -> APIClient:
    return caller(cluster.user("root", staff=True), Scope.ADMIN)


def times(begins_in: timedelta = HOUR, length: timedelta = HOUR) -> dict[str, str]:
    begins_at = timezone.now() + begins_in
    return {"begins_at": begins_at.isoformat(), "ends_at": (begins_at + length).isoformat()}


def spec(**fields: Any) -> dict[str, Any]:
    """A maintenance of n1; a field that is None is left out."""
    given = {"reason": "firmware", "nodes": ["n1"], **times(), **fields}
    return {name: value for name, value in given.items() if value is not None}


@pytest.mark.parametrize("name", ["\0", "\ud800"])
def test_characters_that_a_database_refuses_are_no_name(admin: APIClient, name: str) -> None:
    window, machine = spec(nodes=None, team=name, gpu_type=name, gpus=1), {"name": "desk", "team": name}
    for address, body in ((WINDOWS, window), ("/api/v1/agents", machine)):
        answer = admin.post(address, json.dumps(body), content_type="application/json")
        assert answer.status_code == 422, answer.content
        pointers = {fault["pointer"] for fault in answer.json()["errors"]}
        assert pointers == {f"/{field}" for field, value in body.items() if value == name}


def test_a_maintenance_is_added_listed_and_deleted(cluster: Lab, admin: APIClient, ada: APIClient) -> None:
    answer = admin.post(WINDOWS, spec(), format="json")
    made = answer.json()
    assert (answer.status_code, made["kind"], made["nodes"], made["team"]) == (201, "maintenance", ["n1"], None)
    assert made["next"] == {"begins_at": made["begins_at"], "ends_at": made["ends_at"]}
    assert ada.get(WINDOWS).json()["results"] == [made]
    assert admin.delete(f"{WINDOWS}/{made['id']}").status_code == 204
    assert ada.get(WINDOWS).json()["results"] == []
    actions = AuditEntry.objects.filter(action__startswith="window.").order_by("pk")
    assert list(actions.values_list("action", "actor_name")) == [("window.add", "root"), ("window.delete", "root")]


def test_a_reservation_is_of_a_team(admin: APIClient) -> None:
    made = admin.post(WINDOWS, spec(nodes=None, **RESERVATION), format="json").json()
    assert (made["kind"], made["team"], made["gpu_type"], made["gpus"]) == ("reservation", "vision", "a100", 2)


def test_a_recurring_one_says_when_it_comes_next(admin: APIClient) -> None:
    day = (timezone.now() + timedelta(days=3)).isoweekday()  # not before the first has ended
    cron = f"0 2 * * {day % 7}"
    made = admin.post(WINDOWS, spec(**times(-2 * HOUR), cron=cron, zone="Europe/Berlin"), format="json").json()
    begins_at = parse_datetime(made["next"]["begins_at"])
    assert begins_at is not None
    assert begins_at > timezone.now()
    assert begins_at.isoweekday() == day
    assert begins_at.hour in (0, 1)


def test_one_that_is_over_is_not_listed_and_can_be_read(cluster: Lab, ada: APIClient) -> None:
    now = timezone.now()
    over = TimeWindow.objects.create(reason="fan", begins_at=now - 2 * HOUR, ends_at=now - HOUR)
    assert ada.get(WINDOWS).json()["results"] == []
    assert ada.get(f"{WINDOWS}/{over.pk}").json()["next"] is None


@pytest.mark.parametrize(
    ("fields", "pointer", "words"),
    [
        ({"reason": " "}, "/reason", "blank"),
        ({"nodes": None}, "/nodes", "Name the nodes, or labels"),
        ({"nodes": ["n1", "n7"]}, "/nodes", "no node with the name n7"),
        ({"nodes": None, "labels": {"rack": "r9"}}, "/labels", "No node has all of these labels"),
        ({"team": "vision"}, "/gpus", "a team, a GPU type and a number of GPUs"),
        (RESERVATION, "/nodes", "leave this out"),
        ({"nodes": None, **RESERVATION, "gpus": 99}, "/gpus", "There are 4 a100 in all"),
        ({"nodes": None, **RESERVATION, "team": "nobody"}, "/team", "There is no team with the name nobody"),
        ({"nodes": None, **RESERVATION, "gpu_type": "z9"}, "/gpu_type", "There is no GPU type with the name z9"),
        (times(HOUR, -HOUR), "/ends_at", "ends after it begins"),
        (times(-2 * HOUR), "/ends_at", "is over already"),
        (times(HOUR, timedelta(days=40)), "/ends_at", "at most 31 days"),
        ({"begins_at": "0001-01-01T00:00:00Z"}, "/begins_at", "Give a time after 1999"),
        ({"begins_at": "tonight"}, "/begins_at", "format"),
        ({"cron": "at night"}, "/cron", "Write minute, hour, day, month and weekday"),
        ({"cron": "0 2 30 2 *"}, "/cron", ""),
        ({"cron": "0 * * * *", **times(HOUR, 2 * HOUR)}, "/cron", "before it has ended"),
        ({"cron": "*/10 * * * *", **times(HOUR, timedelta(minutes=5))}, "/cron", "at least one hour apart"),
        ({"cron": "0 2 * * *", "zone": "Europe/Atlantis"}, "/zone", "is no time zone"),
        ({"repeats_until": "2030-01-01T00:00:00Z"}, "/repeats_until", "Without cron"),
        ({"room": "4"}, "/room", "Unknown field"),
    ],
)
def test_what_is_wrong_with_one_is_said_at_its_field(
    cluster: Lab, admin: APIClient, fields: dict[str, Any], pointer: str, words: str
) -> None:
    answer = admin.post(WINDOWS, spec(**fields), format="json")
    found = {fault["pointer"]: fault["detail"] for fault in answer.json()["errors"]}
    assert (answer.status_code, TimeWindow.objects.count()) == (422, 0)
    assert words in found[pointer]


def test_only_an_administrator_adds_one(cluster: Lab, ada: APIClient) -> None:
    assert ada.post(WINDOWS, spec(), format="json").status_code == 403


def test_as_many_queries_for_many_windows_as_for_one(
    cluster: Lab, ada: APIClient, django_assert_num_queries: Any, django_assert_max_num_queries: Any
) -> None:
    def add() -> None:
        begins_at = timezone.now() + HOUR
        made = TimeWindow.objects.create(reason="fan", begins_at=begins_at, ends_at=begins_at + HOUR)
        made.nodes.set(Node.objects.all())

    add()
    ada.get(WINDOWS)  # the first use of a token is noted
    with django_assert_max_num_queries(6) as asked:
        ada.get(WINDOWS)
    for _ in range(5):
        add()
    with django_assert_num_queries(len(asked)):
        ada.get(WINDOWS)


# -- administration and pages --------------------------------------------------------------------------------------


@pytest.fixture
def browser(cluster: Lab) -> Client:
    client = Client()
    client.force_login(cluster.user("root", staff=True))
    return client


def form(**fields: Any) -> dict[str, Any]:
    begins_at = timezone.now() + HOUR
    split = {
        f"{name}_{n}": text
        for name, at in (("begins_at", begins_at), ("ends_at", begins_at + HOUR))
        for n, text in enumerate((f"{at:%Y-%m-%d}", f"{at:%H:%M:%S}"))
    }
    plain = {"kind": "maintenance", "reason": "firmware", "labels": "{}", "cron": "", "zone": "UTC"}
    return {**plain, "nodes": [Node.objects.get(name="n1").pk], **split, **fields}


def test_the_administration_adds_one(browser: Client) -> None:
    answer = browser.post(reverse("admin:scheduler_app_timewindow_add"), form())
    assert answer.status_code == 302, answer.context["errors"]
    window = TimeWindow.objects.get()
    assert [node.name for node in window.nodes.all()] == ["n1"]
    assert window.created_by is not None


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"nodes": []}, "Name the nodes, or labels that they have."),
        ({"cron": "often"}, "Write minute, hour, day, month and weekday"),
        ({"kind": "reservation"}, "A reservation has a team, a GPU type and a number of GPUs."),
        ({"labels": '["r3"]'}, "Write a map from text to text"),
        ({"zone": "Europe/Atlantis"}, "is no time zone"),
    ],
)
def test_the_administration_says_what_is_wrong(browser: Client, fields: dict[str, Any], words: str) -> None:
    answer = browser.post(reverse("admin:scheduler_app_timewindow_add"), form(**fields))
    assert answer.status_code == 200
    assert words in answer.content.decode()
    assert not TimeWindow.objects.exists()


def test_pages_of_the_cluster_and_of_a_node_show_coming_windows(browser: Client, admin: APIClient) -> None:
    admin.post(WINDOWS, spec(), format="json")
    window = TimeWindow.objects.get()
    words = f"Maintenance from {window.begins_at:%F %H:%M} to {window.ends_at:%F %H:%M} UTC: firmware"
    assert words in browser.get(reverse("cluster")).content.decode()
    assert words in browser.get(reverse("node", args=["n1"])).content.decode()
