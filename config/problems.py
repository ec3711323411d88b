"""Mapping of errors to HTTP status codes and problem documents (RFC 9457)."""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from django.conf import settings
from django.core.exceptions import PermissionDenied, RequestDataTooBig
from django.db import InterfaceError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.views import defaults
from rest_framework import exceptions
from rest_framework.response import Response
from rest_framework.views import exception_handler
from structlog.contextvars import get_contextvars

from cluster_app.errors import ClusterError, ReasonMissing
from config.refusals import describe_missing, describe_not_allowed
from connections_app.errors import (
    ConnectionsError,
    NoSuchAgent,
    NoWebSocket,
    TooManyLongRequests,
    TooManyUploads,
)
from database.damage import is_damage, note_damage
from engines.protocol import EngineError
from insight_app.errors import InsightError, TooManySolves
from jobs_app.errors import Conflict, FilesDeleted, InvalidSpec, JobsError, NotAccepted, NotAllowed
from scheduler_app.errors import LeaseLost, SchedulerError
from web.rest.errors import NOT_VALID, Fault, InvalidRequest, bounded, faults_of
from web.rest.parsers import largest_body_of, too_large

CONTENT_TYPE = "application/problem+json"
OURS = (JobsError, ClusterError, ConnectionsError, SchedulerError, InsightError, InvalidRequest, EngineError)
STATUS_OF: dict[type[Exception], int] = {
    InvalidSpec: 422,
    NotAllowed: 403,
    NotAccepted: 422,
    Conflict: 409,
    FilesDeleted: 410,
    ReasonMissing: 422,
    InvalidRequest: 422,
    LeaseLost: 503,
    TooManySolves: 503,
    TooManyLongRequests: 503,
    TooManyUploads: 429,
    NoWebSocket: 426,
    NoSuchAgent: 401,
    EngineError: 503,
    JobsError: 400,
    ClusterError: 409,
    SchedulerError: 409,
    ConnectionsError: 409,
    InsightError: 409,
}
"""The first match counts, so base classes come after their subclasses."""
POINTERS: dict[type[Exception], str] = {ReasonMissing: "/reason"}
RETRY_AFTER_S = "5"
UNAUTHENTICATED = (
    "Send a token: Authorization: Bearer TOKEN. Make one on the page /tokens, or with motley token create."
)
DATABASE_BUSY = "The database is locked, did not answer, or would have taken too long for this request. Try again."
DATABASE_DAMAGED = "The database is damaged: an administrator must restore a backup."


def answer(error: Exception, context: dict[str, Any]) -> Response | None:
    """Problem document of an expected error, ours or REST framework's; None (500) for any other."""
    request: HttpRequest = context["request"]
    if isinstance(error, RequestDataTooBig):
        most = largest_body_of(context.get("view"), str(request.method))
        return _response(request, 413, code="too_large", detail=too_large(most))
    if isinstance(error, OURS):
        return _answer_of_ours(request, error)
    if is_damage(error):
        note_damage()
        return _response(request, 503, code="database_damaged", detail=DATABASE_DAMAGED)
    if isinstance(error, OperationalError | InterfaceError):
        busy = _response(request, 503, code="database_busy", detail=DATABASE_BUSY)
        busy["Retry-After"] = RETRY_AFTER_S
        return busy
    response = exception_handler(error, context)
    if response is None:
        return None
    faults = bounded(faults_of(error.detail)) if isinstance(error, exceptions.ValidationError) else []
    document = _response(
        request, response.status_code, code=_code_of(error), detail=_detail_of(error, context), errors=faults
    )
    for name in dict(response.items()).keys() & {"WWW-Authenticate", "Retry-After"}:
        document[name] = response[name]
    for name, value in getattr(error, "headers", {}).items():
        document[name] = value
    return document


def _answer_of_ours(request: HttpRequest, error: Exception) -> Response:
    status = next(status for kind, status in STATUS_OF.items() if isinstance(error, kind))
    code = getattr(error, "code", "engine" if isinstance(error, EngineError) else "error")
    response = _response(request, status, code=code, detail=str(error), errors=_faults_of_ours(error, code))
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        response["Retry-After"] = RETRY_AFTER_S
    if hasattr(error, "retry_after_s"):
        response["Retry-After"] = str(error.retry_after_s)
    return response


def _faults_of_ours(error: Exception, code: str) -> list[Fault]:
    pointer = POINTERS.get(type(error))
    if pointer is not None:
        return [Fault(pointer=pointer, code=code, detail=str(error))]
    return list(getattr(error, "faults", ()))


def document_of(
    request: HttpRequest, status: int, *, code: str, detail: str, errors: Sequence[Fault] = ()
) -> dict[str, Any]:
    """Members of RFC 9457, and our extensions: `code`, `errors` with JSON pointers, and the request's id."""
    return {
        "type": f"urn:motley:problem:{code}",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        "instance": request.path,
        "code": code,
        "errors": list(errors),
        "request_id": request_id(),
    }


def _response(request: HttpRequest, status: int, *, code: str, detail: str, errors: Sequence[Fault] = ()) -> Response:
    document = document_of(request, status, code=code, detail=detail, errors=errors)
    return Response(document, status=status, content_type=CONTENT_TYPE)


def problem(request: HttpRequest, status: int, *, code: str, detail: str, errors: Sequence[Fault] = ()) -> HttpResponse:
    """The same, where no view of REST framework is at work."""
    document = document_of(request, status, code=code, detail=detail, errors=errors)
    return JsonResponse(document, status=status, content_type=CONTENT_TYPE)


def request_id() -> str:
    return str(get_contextvars().get("request_id", ""))


def is_rest(request: HttpRequest) -> bool:
    return request.path == "/api" or request.path.startswith("/api/")


# -- what no view answers ----------------------------------------------------------------------------------------


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    if isinstance(exception, RequestDataTooBig) and not is_rest(request):
        return render(request, "413.html", {"most_bytes": settings.DATA_UPLOAD_MAX_MEMORY_SIZE}, status=413)
    if not is_rest(request):
        return defaults.bad_request(request, exception)
    return problem(request, 400, code="bad_request", detail="The request is malformed: check its address and headers.")


def forbidden(request: HttpRequest, exception: Exception) -> HttpResponse:
    if not is_rest(request):
        return defaults.permission_denied(request, exception)
    return problem(request, 403, code="permission_denied", detail="You may not do this.")


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    if not is_rest(request):
        return defaults.page_not_found(request, exception)
    return problem(request, 404, code="not_found", detail=f"There is no resource {request.path}. See /api/docs/.")


def broken(request: HttpRequest) -> HttpResponse:
    """500 without details, which are in the log under the request's id."""
    if not is_rest(request):
        return render(request, "500.html", {"request_id": request_id()}, status=500)
    detail = "Internal error. Running jobs are not affected. The service's log has the details under this request_id."
    return problem(request, 500, code="broken", detail=detail)


def _code_of(error: Exception) -> str:
    match error:
        case Http404():
            return "not_found"
        case PermissionDenied():
            return "permission_denied"
        case exceptions.ValidationError():
            return "invalid"
        case exceptions.APIException():
            codes = error.get_codes()
            return codes if isinstance(codes, str) else str(error.default_code)
    return "error"


def _detail_of(error: Exception, context: Mapping[str, Any]) -> str:
    match error:
        case exceptions.ValidationError():
            return NOT_VALID
        case exceptions.MethodNotAllowed():
            return describe_not_allowed(error, context["request"].method, context.get("view"))
        case exceptions.NotAuthenticated():
            return UNAUTHENTICATED
        case exceptions.APIException():
            return str(error.detail)
        case Http404():
            return describe_missing(error, context.get("view"))
    return str(error)
