"""Page *Add a server*: a join token, and the line that makes a machine a server of the site."""

from typing import Any

from django import forms
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.http import HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from cluster_app.models import SERVERS_ENGINE, Node, name_is_plain
from connections_app.agents.join_agent import issue_join_token
from connections_app.errors import AgentRefused
from web.pages.base import SignedInRequest


class ServerForm(forms.Form):
    name = forms.CharField(
        max_length=40,
        label="Name of the server",
        validators=[name_is_plain],
        help_text="Of its node: lower-case letters, digits, '.', '_', '-'.",
    )


@login_required
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def add_server(request: SignedInRequest) -> HttpResponse:
    """Make a join token for a server; the response to a POST is the only page that shows it. Administrators only."""
    if not request.user.is_staff:
        raise PermissionDenied
    form = ServerForm(request.POST if request.method == "POST" else None)
    token = _token_for(request, form) if form.is_valid() else ""
    context: dict[str, Any] = {
        "form": form,
        "token": token,
        "name": form.cleaned_data["name"] if token else "",
        "url": request.build_absolute_uri("/").rstrip("/"),
        "servers": Node.objects.current().filter(engine__name=SERVERS_ENGINE).order_by("name"),
    }
    return render(request, "pages/add_server.html", context)


def _token_for(request: SignedInRequest, form: ServerForm) -> str:
    """The new token; empty, with an error on the form, for a name that may not be used."""
    try:
        _, token = issue_join_token(
            form.cleaned_data["name"], trusted=True, site=True, actor=request.user, now=timezone.now()
        )
    except AgentRefused as error:
        form.add_error("name", str(error))
        return ""
    return token
