"""What every page's view shares: who asks, which page of a list, and how errors are told."""

from typing import Any

from django.contrib import messages
from django.contrib.auth.models import User
from django.db.models import Model, QuerySet
from django.http import Http404, HttpRequest
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request

from cluster_app.errors import ClusterError
from cluster_app.pagination import NewestFirst
from jobs_app.errors import JobsError
from scheduler_app.errors import SchedulerError

OURS = (ClusterError, JobsError, SchedulerError)


class Visit(HttpRequest):
    """A request of somebody who is signed in."""

    user: User


def one_page(request: HttpRequest, rows: QuerySet[Any], pagination: type[NewestFirst] = NewestFirst) -> dict[str, Any]:
    """A keyset page of the rows, with the links to its neighbours."""
    paginator = pagination()
    try:
        page: list[Model] = paginator.paginate_queryset(rows, Request(request)) or []
    except ValidationError as error:  # an address that was made up
        raise Http404 from error
    return {"rows": page, "newer": paginator.get_previous_link(), "older": paginator.get_next_link()}


def tell(request: HttpRequest, error: Exception) -> None:
    """Show on the next page what could not be done."""
    messages.error(request, str(error))
