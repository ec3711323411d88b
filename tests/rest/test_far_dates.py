"""The first and the last day of the calendar, wherever an address takes a month, a day or a time: an answer, no 500."""

from collections.abc import Iterator

import pytest
from django.test import Client

from tests.rest_callers import Scope, caller
from tests.service_lab import Lab

TIMES = ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59Z", "9999-12-31T23:59:59-14:00")
DAYS = ("0001-01-01", "9999-12-31", "10000-01-01", "0000-00-00")
MONTHS = ("0001-01", "9999-12", "0000-01", "10000-01", "2026-00")
SECONDS = ("-62135596800", "-62135596801", "253402300799", "253402300800", "9" * 30, "9" * 5000, "1e9")
ZONES = ("UTC", "America/New_York", "Asia/Kathmandu")


def addresses() -> Iterator[str]:
    for month in MONTHS:
        yield from (f"/{page}?month={month}" for page in ("report", "api/v1/report", "api/v1/report.csv"))
        yield f"/report?format=csv&month={month}"
    for day in DAYS:
        for name in ("since", "until"):
            yield from (
                f"/api/v1/usage{ending}?{name}={day}&by={by}" for ending in ("", ".csv") for by in ("day", "month")
            )
        year, month, number = day.split("-")
        yield f"/admin/audit_app/auditentry/?at__year={year}"
        yield f"/admin/audit_app/auditentry/?at__year={year}&at__month={month}"
        yield f"/admin/audit_app/auditentry/?at__year={year}&at__month={month}&at__day={number}"
    for time in (*TIMES, *DAYS):
        text = time.replace("+", "%2B")
        yield from (f"/api/v1/history?{name}={text}" for name in ("since", "until"))
        yield from (f"/api/v1/jobs?{name}={text}" for name in ("created_after", "updated_since"))
        yield f"/jobs?created_after={text}&updated_since={text}"
    for at in SECONDS:
        yield f"/cluster/then?at={at}"


@pytest.fixture
def staff(lab: Lab, plain_static: None) -> Client:
    lab.node("n1")
    client = Client(raise_request_exception=False)
    root = lab.user("root", "ops", staff=True)
    root.is_superuser = True
    root.save()
    client.force_login(root)
    return client


@pytest.mark.parametrize("zone", ZONES)
def test_an_address_with_a_day_far_away_is_answered(staff: Client, zone: str) -> None:
    staff.cookies["time_zone"] = zone
    answers = {address: staff.get(address) for address in addresses()}
    assert {address[:120]: answer.status_code for address, answer in answers.items() if answer.status_code >= 500} == {}


BODIES = {
    "jobs": ({"command": "x", "gpus": 1}, ("begin_time", "deadline")),
    "tokens": ({"name": "one"}, ("expires_at",)),
    "windows": ({"kind": "maintenance", "reason": "x", "nodes": ["n1"]}, ("begins_at", "ends_at", "repeats_until")),
}


@pytest.mark.parametrize("route", BODIES)
def test_a_body_with_a_day_far_away_is_answered(staff: Client, lab: Lab, route: str) -> None:
    given, fields = BODIES[route]
    client = caller(lab.user("root"), Scope.ADMIN)
    client.raise_request_exception = False
    for field in fields:
        for time in TIMES:
            answer = client.post(f"/api/v1/{route}", given | {field: time}, format="json")
            assert answer.status_code < 500, (field, time, answer.content)
