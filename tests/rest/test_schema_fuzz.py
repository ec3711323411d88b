"""Whatever one sends, the answer is one that the description of REST announces, and none is a 500.

schemathesis makes requests from docs/openapi.yaml, good ones and bad ones, for every route.
"""

import os
from collections.abc import Iterator
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

from jobs_app.models import ApiToken
from jobs_app.tokens import issue_token
from scheduler_app.models import PolicySetting
from tests.rest_callers import Scope
from tests.service_lab import Lab

EXAMPLES = int(os.environ.get("MOTLEY_FUZZ", "20"))
"""Of each route; `MOTLEY_FUZZ=1000 make test ARGS=tests/rest/test_schema_fuzz.py` looks harder."""
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
schema.app = get_wsgi_application()


@pytest.fixture
def _one_connection() -> Iterator[None]:
    """The application closes its connection after each request; the test's goes on, for its rows are in no other."""
    for signal in (request_started, request_finished):
        signal.disconnect(close_old_connections)
    yield
    for signal in (request_started, request_finished):
        signal.connect(close_old_connections)


@pytest.fixture
def places(lab: Lab, plain_static: None, _one_connection: None) -> dict[str, Any]:
    """What there is, by the part of the address that names it; and the caller."""
    lab.node("n1", gpus=4)
    root = lab.user("root", "vision", staff=True)
    job = lab.submit(owner=root)
    lab.tick()
    text = issue_token(root, name="fuzz", scope=Scope.ADMIN)
    return {
        "jobs": str(job.pk),
        "nodes": "n1",
        "gpu-types": "a100",
        "teams": "vision",
        "rounds": 1,
        "policies": PolicySetting.objects.latest("pk").pk,
        "tokens": ApiToken.objects.latest("pk").pk,
        "authorization": f"Bearer {text}",
    }


@schema.parametrize()
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.filter_too_much],
)
def test_every_answer_is_as_described(case: schemathesis.Case, places: dict[str, Any]) -> None:
    """Half of them about things that are there; each is undone, so that they stay there."""
    place = places.get(case.path.split("/")[3])
    if place is not None and case.path_parameters and len(str(case.query)) % 2 == 0:
        case.path_parameters = dict.fromkeys(case.path_parameters, place)
    with transaction.atomic():
        answer = case.call(headers={"Authorization": places["authorization"]})
        transaction.set_rollback(True)
    case.validate_response(answer, checks=CHECKS, excluded_checks=_not_for(case))


def _not_for(case: schemathesis.Case) -> list[Any]:
    """With `?fields=`, fields are missing that are required otherwise: OpenAPI has no words for that."""
    return [response_schema_conformance] if "fields" in (case.query or {}) else []
