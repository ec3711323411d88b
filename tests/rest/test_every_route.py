"""Permissions: every route of REST with every kind of caller. A route without a row fails."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import transaction
from drf_spectacular.generators import SchemaGenerator
from rest_framework.test import APIClient

from tests.rest.routes import ROUTES, Row
from tests.rest.world import World
from tests.service_lab import Lab

WHO = ("anonymous", "stranger", "member", "staff")
BY_TOKEN = ("job", "reader", "clerk")
"""A job's own token and two of limited scope; in `make test` rest/test_rest_tokens.py tries some routes."""


def routes_of_the_service() -> set[str]:
    paths = SchemaGenerator().get_schema(request=None, public=True)["paths"]
    return {
        f"{method.upper()} {path}" for path, methods in paths.items() for method in methods if method != "parameters"
    }


def test_every_operation_has_a_short_summary_of_its_own() -> None:
    paths = SchemaGenerator().get_schema(request=None, public=True)["paths"]
    operations = [item[verb] for item in paths.values() for verb in item if verb != "parameters"]
    summaries = [operation["summary"] for operation in operations]
    assert all(0 < len(summary) <= 60 for summary in summaries), summaries
    assert len(set(summaries)) == len(summaries) == len(ROUTES)


def test_every_route_has_a_row() -> None:
    assert routes_of_the_service() == set(ROUTES)


@pytest.mark.parametrize("who", [*WHO, *(pytest.param(who, marks=pytest.mark.thorough) for who in BY_TOKEN)])
def test_each_is_answered_what_is_theirs(world: World, who: str) -> None:
    assert {route: status_for(world, route, who) for route in ROUTES} == {
        route: getattr(row, who) for route, row in ROUTES.items()
    }


def status_for(world: World, route: str, who: str) -> int:
    """What they are answered; it is undone, so that the next finds everything as it was."""
    row: Row = ROUTES[route]
    method: Callable[..., object] = getattr(world.callers[who], route.split(" ", maxsplit=1)[0].lower())
    with transaction.atomic():
        answer: Any = method(world.address(route), row.body, format="json")
        if answer.streaming:
            b"".join(answer)  # to the end, which closes its file
        transaction.set_rollback(True)
    return int(answer.status_code)


def test_a_session_may_do_what_its_user_may(world: World, lab: Lab) -> None:
    client = APIClient()
    client.force_login(User.objects.get(username="root"))
    assert client.post("/api/v1/nodes/n1/drain", {"reason": "fan"}, format="json").status_code == 202


def test_a_session_needs_the_csrf_token_to_change_anything(world: World) -> None:
    client = APIClient(enforce_csrf_checks=True)
    client.force_login(User.objects.get(username="root"))
    assert client.post("/api/v1/nodes/n1/drain", {"reason": "fan"}, format="json").status_code == 403
