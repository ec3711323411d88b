"""OpenAPI schema: summaries of operations, and the problems and headers that all of them share."""

import re
from collections.abc import Iterator
from typing import Any

from drf_spectacular.extensions import OpenApiSerializerExtension
from drf_spectacular.openapi import AutoSchema
from rest_framework import serializers

Schema = dict[str, Any]
VERBS = ("get", "post", "put", "patch", "delete")

FAULT: Schema = {
    "type": "object",
    "description": "One fault of the request.",
    "required": ["pointer", "code", "detail"],
    "properties": {
        "pointer": {
            "type": "string",
            "description": "Place of the fault: a JSON pointer (RFC 6901) into the body, or /name of a parameter.",
        },
        "code": {"type": "string", "description": "Kind of fault, for programs."},
        "detail": {"type": "string", "description": "Description and remedy, for people."},
    },
}
PROBLEM: Schema = {
    "type": "object",
    "description": "Problem document (RFC 9457).",
    "required": ["type", "title", "status", "detail", "instance", "code", "errors", "request_id"],
    "properties": {
        "type": {"type": "string", "examples": ["urn:motley:problem:not_found"]},
        "title": {"type": "string", "description": "Reason phrase of the status."},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "Description and remedy, for people."},
        "instance": {"type": "string", "description": "Path of the request."},
        "code": {"type": "string", "description": "Kind of problem, for programs."},
        "errors": {"type": "array", "items": {"$ref": "#/components/schemas/Fault"}},
        "request_id": {"type": "string", "description": "Id of the request; the service's log has more under it."},
    },
}
HEADERS: Schema = {
    "X-Request-ID": {
        "description": "The id that the caller sent, if it has up to 64 letters, digits and ._-; else a new one.",
        "schema": {"type": "string"},
    },
    "Retry-After": {
        "description": "Seconds to wait before the next request.",
        "schema": {"type": "integer", "minimum": 0},
    },
    "ETag": {
        "description": "Entity tag of the whole resource, whichever fields are sent.",
        "schema": {"type": "string"},
    },
}
WORDS = {
    "304": "Not modified since the caller read it.",
    "400": "The request is malformed, or a parameter is unknown or not valid.",
    "401": "Not logged in, or the token is unknown, expired or revoked.",
    "403": "Not permitted to the caller, or not in the scope of the token.",
    "404": "Not found, or the caller may not see it.",
    "406": "The requested media type is not available.",
    "409": "The state of the resource does not allow this.",
    "412": "The resource has changed since the caller read it.",
    "413": "The request body is too large.",
    "415": "The body is not JSON.",
    "416": "The range is not in the log or file.",
    "422": "The body is not valid; `errors` lists each fault.",
    "429": "Too many requests.",
    "503": "Temporarily not available; see `Retry-After`.",
    "default": "Any other problem.",
}
WAIT = ("429", "503")


class Operation(AutoSchema):
    """An operation whose summary is the first clause of its description, unless the view gives one."""

    def get_summary(self) -> str:
        return re.split(r"[.:;](?:\s|$)", self.get_description(), maxsplit=1)[0]

    def get_operation_id(self) -> str:
        """Id of the operation, by which generated clients name their functions: `jobs_update`, `jobs_cancel`.

        A POST to a path that ends with a plural creates one of these; to another it does what the path says.
        """
        name = str(super().get_operation_id()).replace(".", "_").replace("_partial_update", "_update")
        is_verb = self.method == "POST" and not self.path.rstrip("/").endswith("s")
        return name.removesuffix("_create") if is_verb else name


class StrictBody(OpenApiSerializerExtension):  # type: ignore[no-untyped-call]
    """Schema of strict bodies: no additional properties, and no blank text where it is required."""

    target_class = "web.rest.bodies.Strict"
    match_subclasses = True

    def map_serializer(self, auto_schema: Any, direction: str) -> Schema:
        schema: Schema = auto_schema._map_serializer(self.target, direction, bypass_extensions=True)
        for name, field in self.target.fields.items():
            if isinstance(field, serializers.CharField) and not field.allow_blank:
                schema["properties"][name].update(minLength=1, pattern=r"\S")
        return schema | {"additionalProperties": False}


def describe_problems(result: Schema, generator: Any, request: Any, public: bool) -> Schema:
    """Postprocessing hook of drf-spectacular: adds problem responses and headers to every operation."""
    components = result.setdefault("components", {})
    components.setdefault("schemas", {}).update(Fault=FAULT, Problem=PROBLEM)
    components["headers"] = HEADERS
    components["responses"] = {_name(code): _problem(code) for code in WORDS}
    for path, operation in _operations(result):
        _complete(path, operation)
    return result


def _operations(result: Schema) -> Iterator[tuple[str, Schema]]:
    for path, item in result["paths"].items():
        yield from ((path, item[verb]) for verb in VERBS if verb in item)


def _complete(path: str, operation: Schema) -> None:
    responses = operation["responses"]
    conditional = {"If-None-Match", "If-Match"} & _parameters(operation)
    for code, response in responses.items():
        response["headers"] = {"X-Request-ID": {"$ref": "#/components/headers/X-Request-ID"}}
        if conditional and code == "200":
            response["headers"]["ETag"] = {"$ref": "#/components/headers/ETag"}
    for code in _codes(path, operation):
        responses.setdefault(code, {"$ref": f"#/components/responses/{_name(code)}"})
    operation["responses"] = dict(sorted(responses.items()))


def _parameters(operation: Schema) -> set[str]:
    return {parameter["name"] for parameter in operation.get("parameters", ())}


def _codes(path: str, operation: Schema) -> Iterator[str]:
    """Status codes of problems that the operation can return."""
    parameters = _parameters(operation)
    yield from ("400", "401", "403", "406", "429", "default")
    yield from ["404"] if "{" in path else []
    yield from ["304"] if "If-None-Match" in parameters else []
    yield from ["412"] if "If-Match" in parameters else []
    yield from ["416", "503"] if "Range" in parameters else []
    of_states = path.startswith("/api/v1/jobs") or path.endswith("/retire")
    yield from ["409"] if of_states and operation["responses"].keys() & {"201", "202", "204"} else []
    yield from ["413", "415", "422"] if "requestBody" in operation else []


def _name(code: str) -> str:
    return {"default": "Problem", "304": "NotModified"}.get(code, f"Problem{code}")


def _problem(code: str) -> Schema:
    names = ["X-Request-ID", *(["Retry-After"] if code in WAIT else []), *(["ETag"] if code == "304" else [])]
    headers = {name: {"$ref": f"#/components/headers/{name}"} for name in names}
    if code == "304":
        return {"description": WORDS[code], "headers": headers}
    content = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {"description": WORDS[code], "headers": headers, "content": content}
