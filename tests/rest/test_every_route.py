"""Permissions: every route of REST with every kind of caller. A route without a row fails."""

import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from io import BytesIO
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone
from drf_spectacular.generators import SchemaGenerator
from rest_framework.test import APIClient

from jobs_app.code.storage import store
from jobs_app.models import ApiToken, Attempt, Job
from jobs_app.secrets import set_secret
from jobs_app.tokens import JobToken
from scheduler_app.models import PolicySetting
from tests.rest.routes import ROUTES, Row
from tests.rest_callers import Scope, caller, with_token
from tests.service_lab import Lab

WHO = ("anonymous", "job", "stranger", "reader", "member", "clerk", "staff")


@dataclass(frozen=True)
class World:
    """A running job of ada's in vision, and every kind of caller."""

    callers: dict[str, APIClient]
    places: dict[str, str]

    def address(self, route: str) -> str:
        path = route.split(" ")[1]
        place = self.places.get(path.split("/")[3])
        return path.format(id=place, name=place, number=place, team=place, digest=self.places["code"])


@pytest.fixture
def world(lab: Lab, plain_static: None) -> World:
    lab.node("n1", gpus=4)
    ada, root = lab.user(), lab.user("root", "admins", staff=True)
    job = lab.submit()
    lab.tick()
    attempt = running(job)
    tokens = {
        "stranger": caller(lab.user("eve", "language")),
        "reader": caller(ada, Scope.READ),
        "member": caller(ada),
        "clerk": caller(root),
        "staff": caller(root, Scope.ADMIN),
    }
    callers = {"anonymous": APIClient(), "job": with_token(JobToken.issue(attempt.pk)), **tokens}
    places = {
        "jobs": str(job.pk),
        "nodes": "n1",
        "engines": "local",
        "gpu-types": "a100",
        "teams": "vision",
        "code": stored_code(ada),
        "rounds": "1",
        "policies": str(PolicySetting.objects.latest("pk").pk),
        "secrets": str(set_secret("OURS", "long enough", team=ada.teams.get(), actor=ada).pk),
        "tokens": str(ApiToken.objects.filter(user=ada).latest("pk").pk),
    }
    return World(callers, places)


def stored_code(owner: User) -> str:
    """Digest of an archive of vision's."""
    body = BytesIO()
    tarfile.open(fileobj=body, mode="w:gz").close()
    digest = sha256(body.getvalue()).hexdigest()
    store(BytesIO(body.getvalue()), digest, team=owner.teams.get(), user=owner)
    return digest


def running(job: Job) -> Attempt:
    """As far as the rows say: nothing here looks at the processes."""
    attempt = Attempt.objects.filter(job=job).latest("pk")
    Attempt.objects.filter(pk=attempt.pk).update(state=Attempt.State.RUNNING, started_at=timezone.now())
    Job.objects.filter(pk=job.pk).update(state=Job.State.RUNNING)
    return attempt


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


@pytest.mark.parametrize("route", ROUTES)
def test_each_is_answered_what_is_theirs(world: World, route: str) -> None:
    row = ROUTES[route]
    answers = {who: status_for(world, route, who) for who in WHO}
    assert answers == {who: getattr(row, who) for who in WHO}


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
