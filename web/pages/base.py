"""Helpers of page views: logged-in requests, pagination, error messages, visible jobs, CSV."""

from collections.abc import Iterable
from typing import Any

from django.contrib import messages
from django.contrib.auth.models import User
from django.db.models import F, Model, Prefetch, QuerySet
from django.http import Http404, HttpRequest
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request

from cluster_app.errors import ClusterError
from cluster_app.models import Node
from connections_app.errors import ConnectionsError
from insight_app.errors import InsightError
from jobs_app.errors import JobsError
from jobs_app.models import Attempt, Job
from jobs_app.models.job import JobQuerySet
from scheduler_app.errors import SchedulerError
from web.pages.time_zones import in_page_zone
from web.rest.pagination import NewestFirst

DOMAIN_ERRORS = (ClusterError, ConnectionsError, InsightError, JobsError, SchedulerError)


ROWS_ON_A_PHONE = 20
"""Of a page of a list, where a row is a card of several lines."""


class ToldReader(str):
    """Message of a `Http404` that the page of it shows; other messages name rows and models."""

    for_reader = True


def unknown_value(name: str, value: str, choices: Iterable[str]) -> Http404:
    """The refusal of a query parameter's value, with the values that there are."""
    return Http404(ToldReader(f"There is no {name}={value[:60]}. There are: {', '.join(filter(None, choices))}."))


class SignedInRequest(HttpRequest):
    """A request of a logged-in user."""

    user: User


def posted(request: HttpRequest, name: str) -> str:
    """A text of a form without fields of its own, without NUL, which PostgreSQL refuses."""
    return request.POST.get(name, "").replace("\0", "").strip()


def paginate(request: HttpRequest, rows: QuerySet[Any], pagination: type[NewestFirst] = NewestFirst) -> dict[str, Any]:
    """One keyset-paginated page of the rows, with links to the next and previous one."""
    paginator = pagination()
    if "Mobi" in request.headers.get("User-Agent", ""):
        paginator.page_size = ROWS_ON_A_PHONE
    try:
        page: list[Model] = paginator.paginate_queryset(rows, Request(request)) or []
    except ValidationError as error:  # a cursor that the service did not issue
        raise Http404 from error
    return {"rows": page, "newer": paginator.get_previous_link(), "older": paginator.get_next_link()}


def show_error(request: HttpRequest, error: Exception) -> None:
    """Show the error as a message on the next page."""
    messages.error(request, in_page_zone(str(error)))


def job_rows(user: User) -> JobQuerySet:
    """Jobs that the user may see, each with its latest attempt; the number of queries is constant."""
    latest = Attempt.objects.filter(number=F("job__attempt_count")).select_related("gpu_type")
    rows = Job.objects.visible_to(user).select_related("team", "owner")
    return rows.prefetch_related(Prefetch("attempts", latest))


def emulated_nodes() -> set[str]:
    """Names of the nodes whose GPUs are emulated."""
    return set(Node.objects.filter(emulated=True).values_list("name", flat=True))
