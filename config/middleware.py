"""Middleware: request ids, addresses, rate limits, errors of the database, and the Permissions-Policy header."""

import logging
import re
from collections.abc import Callable
from time import monotonic
from uuid import uuid4

from django.conf import settings
from django.db import InterfaceError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import is_valid_path, reverse
from django_structlog.middlewares import RequestMiddleware
from structlog.contextvars import bind_contextvars, clear_contextvars

from config.problems import DATABASE_BUSY, DATABASE_DAMAGED, RETRY_AFTER_S, is_rest, problem
from database.damage import is_damage, note_damage
from jobs_app.errors import LoginEnded
from web.rest.throttling import address_of, counter

REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
DOORS = {"/api": "rest", "/admin": "admin"}
NOT_NEEDED = ("accelerometer", "camera", "geolocation", "gyroscope", "magnetometer", "microphone", "payment", "usb")
PERMISSIONS = ", ".join(f"{feature}=()" for feature in NOT_NEEDED)
UNLIMITED = ("/livez", "/readyz", "/healthz/", "/metrics", "/static/")
"""Probes and metrics must be answered especially when the service is busy."""

log = logging.getLogger(__name__)
GetResponse = Callable[[HttpRequest], HttpResponse]


class Correlation(RequestMiddleware):
    """One id in a request's logs, problem document, audit entries and response: the caller's, if it is well-formed."""

    def prepare(self, request: HttpRequest) -> None:
        clear_contextvars()
        given = request.META.get("HTTP_X_REQUEST_ID", "")  # not `headers`, which are read once and kept
        request.META["HTTP_X_REQUEST_ID"] = given if REQUEST_ID.fullmatch(given) else uuid4().hex
        bind_contextvars(door=door_of(request.path))
        request.META["motley.began"] = monotonic()
        super().prepare(request)

    def handle_response(self, request: HttpRequest, response: HttpResponse) -> None:
        response["X-Request-ID"] = request.META["HTTP_X_REQUEST_ID"]
        bind_contextvars(duration_ms=round(1000 * (monotonic() - request.META["motley.began"]), 1))
        if request.path.startswith(UNLIMITED) and response.status_code < 400:
            clear_contextvars()  # no log line for each probe and static file
            return
        super().handle_response(request, response)

    @staticmethod
    def format_request(request: HttpRequest) -> str:
        """Without the query string, which may contain a token."""
        return f"{request.method} {request.path}"


def door_of(path: str) -> str:
    """Entry point of a request, as the audit list names it."""
    return next((door for prefix, door in DOORS.items() if path.startswith(prefix)), "page")


def permissions_policy(get_response: GetResponse) -> GetResponse:
    """Forbid browser features that no page needs, such as the camera."""

    def answer(request: HttpRequest) -> HttpResponse:
        response = get_response(request)
        response.setdefault("Permissions-Policy", PERMISSIONS)
        return response

    return answer


def no_nul_in_addresses(get_response: GetResponse) -> GetResponse:
    """404 for an address with a NUL, which PostgreSQL cannot look up; REST itself refuses one in a query."""

    def answer(request: HttpRequest) -> HttpResponse:
        if "\0" in request.path_info or ("%00" in request.META.get("QUERY_STRING", "") and not is_rest(request)):
            raise Http404
        return get_response(request)

    return answer


def forms_only(get_response: GetResponse) -> GetResponse:
    """A page in place of the empty 405 of an address that takes forms alone, with the way back."""

    def answer(request: HttpRequest) -> HttpResponse:
        response = get_response(request)
        if response.status_code != 405 or is_rest(request) or request.method not in ("GET", "POST"):
            return response
        page = render(request, "405.html", {"back": _page_above(request.path)}, status=405)
        page["Allow"] = response["Allow"]
        return page

    return answer


def _page_above(path: str) -> str:
    """The address one level up, if there is something; else Home."""
    above = path.rstrip("/").rpartition("/")[0]
    return above if above and is_valid_path(above) else reverse("home")


class DatabaseBusy:
    """503 instead of 500 where the database is locked, away, damaged, or took too long."""

    def __init__(self, get_response: GetResponse) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self._get_response(request)

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        if is_damage(exception):
            log.error("the database is damaged: %s", exception)
            note_damage()
            return _unavailable(request, "database_damaged", DATABASE_DAMAGED)
        if not isinstance(exception, OperationalError | InterfaceError):
            return None
        log.warning("the database did not answer a request: %s", exception)
        answer = _unavailable(request, "database_busy", DATABASE_BUSY)
        answer["Retry-After"] = RETRY_AFTER_S
        return answer


class LoginsEnded:
    """The login page instead of 500 where a page was asked for with a login that has ended in the meantime."""

    def __init__(self, get_response: GetResponse) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self._get_response(request)

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        return redirect("home") if isinstance(exception, LoginEnded) and not is_rest(request) else None


def _unavailable(request: HttpRequest, code: str, detail: str) -> HttpResponse:
    if is_rest(request):
        return problem(request, 503, code=code, detail=detail)
    return render(request, "503.html", {"detail": detail}, status=503)


def note_page_views(get_response: GetResponse) -> GetResponse:
    """Note when a page was last loaded by somebody logged in: the demo goes on as long as anyone looks."""

    def answer(request: HttpRequest) -> HttpResponse:
        if not is_rest(request) and request.user.is_authenticated:
            settings.MOTLEY_LAST_PAGE_VIEW.touch()
        return get_response(request)

    return answer


def limit_by_address(get_response: GetResponse) -> GetResponse:
    """Limit anonymous requests, and requests with invalid tokens, per address."""

    def answer(request: HttpRequest) -> HttpResponse:
        if request.path.startswith(UNLIMITED):
            return get_response(request)
        by_token = is_rest(request) and "Authorization" in request.headers  # pages ignore the header
        if not by_token and not request.user.is_authenticated:
            return _too_many(request) or get_response(request)
        response = get_response(request)
        return (response.status_code == 401 and _too_many(request)) or response

    return answer


def _too_many(request: HttpRequest) -> HttpResponse | None:
    """Count the request; return a refusal if the limit is exceeded."""
    tries = request.method == "POST" and request.path in (reverse("login"), reverse("admin:login"))
    group, rate = ("login", settings.MOTLEY_LOGIN_RATE) if tries else ("anybody", settings.MOTLEY_ANONYMOUS_RATE)
    wait_s = counter.count(request, group, f"address {address_of(request)}", rate)
    return refusal(request, wait_s) if wait_s else None


def refusal(request: HttpRequest, wait_s: int) -> HttpResponse:
    """429 with `Retry-After`: a problem document over REST, else a page."""
    if is_rest(request):
        detail = f"Too many requests from this address. Try again in {wait_s} s."
        response = problem(request, 429, code="throttled", detail=detail)
    else:
        response = render(request, "429.html", {"wait_s": wait_s}, status=429)
    response["Retry-After"] = str(wait_s)
    return response
