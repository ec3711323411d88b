"""The service's own client as a wheel, for `pip install` without an account: its sources are public."""

from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.functional import SimpleLazyObject
from django.views.decorators.http import require_safe

from operations.client_wheel import client_wheel, wheel_name


def wheel_address(request: HttpRequest) -> dict[str, Any]:
    """Context processor: address of the wheel, as the reader reaches the service."""
    address = SimpleLazyObject(lambda: request.build_absolute_uri(reverse("client-wheel", args=[wheel_name()])))
    return {"wheel_address": address}


@require_safe
def client_page(request: HttpRequest) -> HttpResponse:
    """How to connect a terminal; also a page for `pip --find-links`."""
    return render(request, "pages/client.html")


@require_safe
def wheel(request: HttpRequest, name: str) -> HttpResponse:
    """The wheel of the version that this service runs."""
    if name != wheel_name():
        raise Http404
    return HttpResponse(client_wheel(), content_type="application/zip")
