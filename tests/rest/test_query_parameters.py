"""Every query parameter of every route takes what the description of REST allows, and refuses what it does not."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from django.db import transaction
from drf_spectacular.generators import SchemaGenerator
from rest_framework.test import APIClient

from tests.rest.routes import ROUTES
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


@pytest.mark.parametrize("route", PARAMETERS)
def test_parameters_take_what_is_described(world: World, route: str) -> None:
    values = [(it, value) for it in PARAMETERS[route] for value in outside(it.schema)]
    assert [(it.name, value) for it, value in values if not is_refused(world, it, value)] == []
    values = [(it, value) for it in PARAMETERS[route] for value in inside(it.schema)]
    assert [(it.name, value) for it, value in values if is_refused(world, it, value)] == []
