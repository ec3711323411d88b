"""Whatever one sends, the answer is one that the description of REST announces, and none is a 500.

schemathesis makes requests from docs/openapi.yaml, good ones and bad ones, for every route. A part of them are about
things that are there, and each operation that can succeed does so at least once: else only refusals would be looked at.
"""

import os
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from django.conf import settings as service_settings
from django.core.signals import request_finished, request_started
from django.core.wsgi import get_wsgi_application
from django.db import close_old_connections, transaction
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from jobs_app.models import Job
from tests.hypothesis_examples import part
from tests.rest.routes import ROUTES
from tests.rest.world import EMPTY_ARCHIVE, World
from tests.service_lab import Lab

EXAMPLES = int(os.environ.get("MOTLEY_FUZZ", "20"))
"""Of each route; `MOTLEY_FUZZ=1000 make test-postgresql ARGS=tests/rest/test_schema_fuzz.py` looks harder."""
NEVER = {
    "GET /api/v1/jobs/{id}/session": "it succeeds by becoming a WebSocket (101), for which there is no socket here",
    "GET /api/v1/jobs/{id}/files/content": "no path that is drawn names a file; in test_rest_files.py one does",
    "POST /api/v1/nodes/{name}/retire": "a job holds its GPUs; in test_rest_retirement.py none does",
    "POST /api/v1/gpu-types/{name}/retire": "the same",
    "POST /api/v1/teams/{name}/retire": "the same",
    "POST /api/v1/agents/{name}/update": "the agent here is no server; in connections/test_server_updates.py one is",
    "POST /api/v1/lab/runs/{id}/preview": "no run has ended here; in test_lab_applying.py one has",
    "POST /api/v1/lab/runs/{id}/apply": "the same",
}
"""Operations that cannot succeed here, and why."""
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]

Path(service_settings.STATIC_ROOT).mkdir(parents=True, exist_ok=True)  # looked for when the application is made


@schemathesis.serializer("application/gzip")
def _as_it_is(context: object, value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


schema = schemathesis.openapi.from_path(Path(__file__).resolve().parents[2] / "docs" / "openapi.yaml")
schema.config.phases.coverage.enabled = part() == 1  # 50 requests of each route, which take seconds to be made up
service = get_wsgi_application()


def _read_and_closed(environ: dict[str, Any], start_response: Any) -> list[bytes]:
    """The application, whose answers are read and closed as a server does; schemathesis leaves files open."""
    answer = service(environ, start_response)
    try:
        return [b"".join(answer)]
    finally:
        answer.close()


schema.app = _read_and_closed


@pytest.fixture
def _one_connection() -> Iterator[None]:
    """The application closes its connection after each request; the test's goes on, for its rows are in no other."""
    for signal in (request_started, request_finished):
        signal.disconnect(close_old_connections)
    yield
    for signal in (request_started, request_finished):
        signal.connect(close_old_connections)


@dataclass
class Reached:
    """The world of the test, and how often the operation succeeded there."""

    world: World
    held: str
    """A job that can be released."""
    route: str = ""
    statuses: Counter[int] = field(default_factory=Counter)


@pytest.fixture
def reached(world: World, lab: Lab, _one_connection: None) -> Iterator[Reached]:
    held = lab.submit()
    Job.objects.filter(pk=held.pk).update(held=True)
    reached = Reached(world, str(held.pk))
    yield reached
    succeeded = sum(times for status, times in reached.statuses.items() if 200 <= status < 300)
    assert bool(succeeded) is (reached.route not in NEVER), (reached.route, reached.statuses)


@pytest.mark.more_examples
@schema.parametrize()
@settings(
    max_examples=max(2, round(EXAMPLES * part())),
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.filter_too_much],
)
def test_every_answer_is_as_described(case: schemathesis.Case, reached: Reached) -> None:
    """Each is undone, so that everything stays there, tokens too."""
    reached.route = case.operation.label
    made_up = zlib.crc32(repr((case.path_parameters, case.query, case.body)).encode())
    first = not reached.statuses  # the world is there for all examples: one at least is answered with success
    if first or made_up % 4 < 3 or not case.path_parameters:
        _go_to_what_is_there(case, reached)
    if first or made_up % 4 < 2:
        _say_what_is_right(case, reached)
    with transaction.atomic():
        answer = case.call(headers={"Authorization": _token_for(case.operation.label, reached.world)})
        transaction.set_rollback(True)
    reached.statuses[answer.status_code] += 1
    case.validate_response(answer, checks=CHECKS, excluded_checks=_not_for(case))


def _go_to_what_is_there(case: schemathesis.Case, reached: Reached) -> None:
    places = reached.world.places
    first, last = case.path.split("/")[3], case.path.rpartition("/")[2]
    place = reached.held if last == "release" else places.get(first)
    others = {"digest": places["code"], "gpu_type": places["gpu-types"], "username": places["members"]}
    others["event"] = places["comments"]
    case.path_parameters = {name: others.get(name, place) for name in case.path_parameters or {}}


def _say_what_is_right(case: schemathesis.Case, reached: Reached) -> None:
    """A body that the route takes, and neither conditions nor a range."""
    case.query, case.headers = {}, type(case.headers)()
    if reached.route.startswith("PUT /api/v1/teams/{team}/code"):
        case.body, case.media_type = EMPTY_ARCHIVE, "application/gzip"
    elif case.method in {"POST", "PUT", "PATCH"}:
        case.body, case.media_type = ROUTES[reached.route].body or {}, "application/json"


def _token_for(route: str, world: World) -> str:
    """Of an administrator, or of a member where only that one succeeds."""
    row = ROUTES[route]
    who = "member" if row.staff >= 300 and row.member < row.staff else "staff"
    return str(world.callers[who].defaults["HTTP_AUTHORIZATION"])


def _not_for(case: schemathesis.Case) -> list[Any]:
    """With `?fields=`, fields are missing that are required otherwise: OpenAPI has no words for that."""
    return [response_schema_conformance] if "fields" in (case.query or {}) else []
