"""Errors become RFC 9457 problem details, here and nowhere else."""

from http import HTTPStatus
from typing import Any

from django.conf import settings
from django.core.exceptions import PermissionDenied, RequestDataTooBig
from django.http import Http404
from rest_framework import exceptions
from rest_framework.response import Response
from rest_framework.views import exception_handler

from jobs_app.errors import Conflict, InvalidSpec, JobsError, NotAllowed, faults_of

STATUS_OF: dict[type[JobsError], int] = {InvalidSpec: 422, NotAllowed: 403, Conflict: 409}


def answer(error: Exception, context: dict[str, Any]) -> Response | None:
    """The problem document of any error that we or DRF raise on purpose; None (a 500) for the rest."""
    if isinstance(error, RequestDataTooBig):
        detail = f"A request may be at most {settings.DATA_UPLOAD_MAX_MEMORY_SIZE} bytes long."
        return _problem(413, code="too_large", detail=detail, errors=[], context=context)
    if isinstance(error, JobsError):
        status = next(code for kind, code in STATUS_OF.items() if isinstance(error, kind))
        return _problem(status, code=error.code, detail=str(error), errors=list(error.faults), context=context)
    response = exception_handler(error, context)
    if response is None:
        return None
    headers = dict(response.items())
    problem = _problem(
        response.status_code,
        code=_code_of(error),
        detail=_detail_of(error),
        errors=list(faults_of(error.detail)) if isinstance(error, exceptions.ValidationError) else [],
        context=context,
    )
    for name in headers.keys() & {"WWW-Authenticate", "Retry-After"}:
        problem[name] = headers[name]
    return problem


def _problem(status: int, *, code: str, detail: str, errors: list[Any], context: dict[str, Any]) -> Response:
    body = {
        "type": f"urn:motley:problem:{code}",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        "instance": context["request"].path,
        "code": code,
        "errors": errors,
    }
    return Response(body, status=status, content_type="application/problem+json")


def _code_of(error: Exception) -> str:
    match error:
        case Http404():
            return "not_found"
        case PermissionDenied():
            return "permission_denied"
        case exceptions.ValidationError():
            return "invalid"
        case exceptions.APIException():
            return str(error.default_code)
    return "error"


def _detail_of(error: Exception) -> str:
    match error:
        case exceptions.ValidationError():
            return "The request has faults; each is listed with its place."
        case exceptions.APIException():
            return str(error.detail)
        case Http404():
            return "There is no such thing here, or you may not see it."
    return str(error)
