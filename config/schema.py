"""What the description of REST says of every route alike: its problems, its headers, its ids."""

from collections.abc import Iterator
from typing import Any

from drf_spectacular.extensions import OpenApiSerializerExtension
from rest_framework import serializers

Schema = dict[str, Any]
VERBS = ("get", "post", "put", "patch", "delete")

FAULT: Schema = {
    "type": "object",
    "description": "One thing that is wrong with the request.",
    "required": ["pointer", "code", "detail"],
    "properties": {
        "pointer": {"type": "string", "description": "Where: a JSON pointer (RFC 6901), or /name of a parameter."},
        "code": {"type": "string", "description": "Which kind, for programs."},
        "detail": {"type": "string", "description": "What it is and what helps, for people."},
    },
}
PROBLEM: Schema = {
    "type": "object",
    "description": "Why it was not done (RFC 9457).",
    "required": ["type", "title", "status", "detail", "instance", "code", "errors", "request_id"],
    "properties": {
        "type": {"type": "string", "examples": ["urn:motley:problem:not_found"]},
        "title": {"type": "string", "description": "The status in words."},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "What was wrong and what helps, for people."},
        "instance": {"type": "string", "description": "The address that was asked for."},
        "code": {"type": "string", "description": "Which kind of problem, for programs."},
        "errors": {"type": "array", "items": {"$ref": "#/components/schemas/Fault"}},
        "request_id": {"type": "string", "description": "Under this id the service's log says more."},
    },
}
HEADERS: Schema = {
    "X-Request-ID": {
        "description": "The caller's own, if it sent one of up to 64 letters, digits and ._-; else a new one.",
        "schema": {"type": "string"},
    },
    "Retry-After": {"description": "Ask again after so many seconds.", "schema": {"type": "integer", "minimum": 0}},
    "ETag": {"description": "Of the whole resource, whichever fields were asked for.", "schema": {"type": "string"}},
}
WORDS = {
    "304": "It is still in the state that the caller has seen.",
    "400": "The request cannot be read, or a parameter is wrong.",
    "401": "Nobody is signed in, or the token is unknown, expired or revoked.",
    "403": "The caller may not do this, or the token's scope does not cover it.",
    "404": "There is no such thing, or the caller may not see it.",
    "406": "The answer cannot be had in the form that was asked for.",
    "409": "It is not in a state in which this can be done.",
    "412": "It has changed since the caller looked.",
    "413": "The request is too long.",
    "415": "The body is not JSON.",
    "416": "The log has nothing there.",
    "422": "The body has faults; each is listed with its place.",
    "429": "Too many requests.",
    "503": "Not now.",
    "default": "Any other problem.",
}
WAIT = ("429", "503")


class StrictBody(OpenApiSerializerExtension):  # type: ignore[no-untyped-call]
    """What we read, as strictly as we read it: no other fields, and no blank text where there must be some."""

    target_class = "jobs_app.fields.Strict"
    match_subclasses = True

    def map_serializer(self, auto_schema: Any, direction: str) -> Schema:
        schema: Schema = auto_schema._map_serializer(self.target, direction, bypass_extensions=True)
        for name, field in self.target.fields.items():
            if isinstance(field, serializers.CharField) and not field.allow_blank:
                schema["properties"][name].update(minLength=1, pattern=r"\S")
        return schema | {"additionalProperties": False}


def describe_problems(result: Schema, generator: Any, request: Any, public: bool) -> Schema:
    """A hook of drf-spectacular: the same for every operation, so it is written once."""
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
    """What may be answered instead of what was asked for."""
    parameters = _parameters(operation)
    yield from ("400", "401", "403", "406", "429", "default")
    yield from ["404"] if "{" in path else []
    yield from ["304"] if "If-None-Match" in parameters else []
    yield from ["412"] if "If-Match" in parameters else []
    yield from ["416", "503"] if "Range" in parameters else []
    yield from ["409"] if path.startswith("/api/v1/jobs") and operation["responses"].keys() & {"201", "202"} else []
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
