"""Middleware that refuses query parameters which the description of the REST operation does not have."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from django.http import HttpRequest, HttpResponse
from drf_spectacular.drainage import GENERATOR_STATS
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.plumbing import ComponentRegistry
from drf_spectacular.settings import spectacular_settings

from config.problems import problem
from web.rest.choices import guess_of
from web.rest.errors import NOT_VALID, Fault, encodable, escaped

GetResponse = Callable[[HttpRequest], HttpResponse]
View = Callable[..., Any]
Endpoint = tuple[str, str]


class RefuseUnknownParameters:
    """400 for a parameter that the operation does not have: a misspelt filter must not be ignored silently."""

    def __init__(self, get_response: GetResponse) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self._get_response(request)

    def process_view(
        self, request: HttpRequest, view: View, _args: Sequence[Any], _named: dict[str, Any]
    ) -> HttpResponse | None:
        if not request.GET or not request.path.startswith(spectacular_settings.SCHEMA_PATH_PREFIX):
            return None
        known = parameters_of(view, "GET" if request.method == "HEAD" else str(request.method))
        if known is None or request.GET.keys() <= set(known):
            return None
        faults = [fault_of(name, known) for name in request.GET if name not in known]
        return problem(request, 400, code="invalid", detail=NOT_VALID, errors=faults)


@lru_cache(maxsize=1024)
def parameters_of(view: View, method: str) -> tuple[str, ...] | None:
    """Names of the query parameters of an operation, from its description; None where none is described."""
    endpoint = _endpoints().get((view, method))
    if endpoint is None:
        return None
    path, path_regex = endpoint
    generator: Any = SchemaGenerator()  # type: ignore[no-untyped-call]
    seen = generator.create_view(view, method)
    seen.request = spectacular_settings.GET_MOCK_REQUEST(method, path, seen, None)
    prefix = f"^{spectacular_settings.SCHEMA_PATH_PREFIX}"
    with GENERATOR_STATS.silence():  # what it warns of, `make schema` has told
        operation = seen.schema.get_operation(path, path_regex, prefix, method, ComponentRegistry())
    if operation is None:
        return None
    return tuple(each["name"] for each in operation.get("parameters", ()) if each["in"] == "query")


@lru_cache(maxsize=1)
def _endpoints() -> dict[tuple[View, str], Endpoint]:
    """Path and regular expression of each view and method."""
    generator: Any = SchemaGenerator()  # type: ignore[no-untyped-call]
    generator._initialise_endpoints()
    return {(view, method): (path, path_regex) for path, path_regex, method, view in generator.endpoints}


def fault_of(name: str, known: Sequence[str]) -> Fault:
    """What is wrong with an unknown parameter: the nearest name, and all there are."""
    names = f"The parameters are: {', '.join(known)}." if known else "This operation has no query parameters."
    text = f"Unknown parameter {encodable(repr(name[:100]))}.{guess_of(name, known)} {names}"
    return Fault(pointer=encodable(f"/{escaped(name)}"), code="unknown", detail=text)
