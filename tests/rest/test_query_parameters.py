"""Every query parameter of every route takes what the description of REST allows, and refuses what it does not."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from django.db import transaction
from drf_spectacular.generators import SchemaGenerator
from rest_framework.test import APIClient

from tests.rest.routes import ROUTES, resource_of
from tests.rest.world import World

NOT_OF_TYPE = {"integer": ("1.5", "x"), "number": ("x",), "boolean": ("perhaps", "yes", "1"), "string": (), "array": ()}
NOT_OF_FORMAT = {"uuid": ("x",), "date": ("x", "2026-13-01"), "date-time": ("x", "2026-11-24T25:00:00Z")}


class Parameter(NamedTuple):
    route: str
    name: str
    schema: dict[str, Any]


def parameters() -> dict[str, list[Parameter]]:
    """By route; only of those that have some."""
    paths = SchemaGenerator().get_schema(request=None, public=True)["paths"]
    found = defaultdict(list)
    for route in ROUTES:
        method, path = route.split(" ")
        for described in paths[path][method.lower()].get("parameters", []):
            if described["in"] == "query":
                found[route].append(Parameter(route, described["name"], described["schema"]))
    return found


PARAMETERS = parameters()


def outside(schema: dict[str, Any]) -> Iterator[str]:
    """Values that the schema does not allow, among them the empty one."""
    if schema["type"] == "array":
        yield from outside(schema["items"])
        return
    if schema["type"] != "string" or {"format", "enum"} & schema.keys() or schema.get("minLength"):
        yield ""
    yield from NOT_OF_TYPE[schema["type"]]
    yield from NOT_OF_FORMAT.get(schema.get("format", ""), ())
    if "enum" in schema:
        yield "none-of-them"
    if "minimum" in schema:
        yield str(schema["minimum"] - 1)
    if "maximum" in schema:
        yield str(schema["maximum"] + 1)


def inside(schema: dict[str, Any]) -> Iterator[str]:
    """Values that the schema allows, among them the empty one."""
    if schema["type"] == "array":
        yield from inside(schema["items"])
        return
    if schema["type"] == "string" and not ({"format", "enum"} & schema.keys() or schema.get("minLength")):
        yield ""
    yield from schema.get("enum", ())
    yield from {"boolean": ("true", "false")}.get(schema["type"], ())
    yield from {"date": ("2026-11-01",), "date-time": ("2026-11-24T08:00:00Z",)}.get(schema.get("format", ""), ())
    yield from (str(schema[name]) for name in ("minimum", "maximum") if name in schema)


def is_refused(world: World, parameter: Parameter, value: str) -> bool:
    """Whether the answer is a fault of this parameter."""
    method = parameter.route.split(" ")[0].lower()
    callers = world.callers
    for who in ("member", "staff"):
        client: APIClient = callers[who]
        address = f"{world.address(parameter.route)}?{parameter.name}={value}"
        with transaction.atomic():
            answer: Any = getattr(client, method)(address, ROUTES[parameter.route].body, format="json")
            transaction.set_rollback(True)
        if answer.status_code not in (403, 404):
            break
    faults = answer.json()["errors"] if answer.status_code == 400 else []
    return any(fault["pointer"] == f"/{parameter.name}" for fault in faults)


@pytest.mark.parametrize("resource", dict.fromkeys(map(resource_of, PARAMETERS)))
def test_parameters_take_what_is_described(world: World, resource: str) -> None:
    described = [it for route, of_it in PARAMETERS.items() if resource_of(route) == resource for it in of_it]
    values = [(it, value) for it in described for value in outside(it.schema)]
    assert [(it.route, it.name, value) for it, value in values if not is_refused(world, it, value)] == []
    values = [(it, value) for it in described for value in inside(it.schema)]
    assert [(it.route, it.name, value) for it, value in values if is_refused(world, it, value)] == []


def test_no_operation_takes_a_parameter_that_it_does_not_have(world: World) -> None:
    client = world.callers["staff"]
    for route, row in ROUTES.items():
        method = route.split(" ")[0].lower()
        answer: Any = getattr(client, method)(f"{world.address(route)}?bogus=1", row.body, format="json")
        assert answer.status_code == 400, route
        assert answer["Content-Type"] == "application/problem+json"
        (fault,) = answer.json()["errors"]
        assert (fault["pointer"], fault["code"]) == ("/bogus", "unknown"), route
        known = [it.name for it in PARAMETERS.get(route, ())]
        said = f"The parameters are: {', '.join(known)}." if known else "This operation has no query parameters."
        assert fault["detail"] == f"Unknown parameter 'bogus'. {said}", route


def test_every_unknown_parameter_is_told_with_the_nearest_that_there_is(world: World) -> None:
    answer: Any = world.callers["member"].get("/api/v1/jobs?stat=queued&limit=5&teem=vision")
    faults = {fault["pointer"]: fault["detail"] for fault in answer.json()["errors"]}
    assert faults.keys() == {"/stat", "/teem"}
    assert faults["/stat"].startswith("Unknown parameter 'stat'. Did you mean 'state'? The parameters are: array,")
    assert "Did you mean 'team'?" in faults["/teem"]


def test_a_parameter_that_other_services_have_is_told_with_our_name(world: World) -> None:
    answer: Any = world.callers["member"].get("/api/v1/jobs?page_size=0&offset=5")
    faults = {fault["pointer"]: fault["detail"] for fault in answer.json()["errors"]}
    assert "Did you mean 'limit'?" in faults["/page_size"]
    assert "Did you mean 'cursor'?" in faults["/offset"]


def test_a_name_that_utf_8_cannot_write_is_told_escaped(world: World) -> None:
    answer: Any = world.callers["member"].get("/api/v1/jobs?%ed%b2%80=1&a~/b=2")
    assert answer.status_code == 400
    assert "/a~0~1b" in {fault["pointer"] for fault in answer.json()["errors"]}


def test_agents_of_other_versions_may_say_more(world: World) -> None:
    """Their messages are no part of the description."""
    assert APIClient().post("/api/v1/agent/sync?version=9", {}, format="json").status_code == 401


def test_an_unknown_path_stays_not_found(world: World) -> None:
    assert world.callers["member"].get("/api/v1/nothing?bogus=1").status_code == 404
