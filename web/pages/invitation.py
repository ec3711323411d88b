"""Invitation page: the person whom a link invites chooses a password, and is signed in."""

from typing import Any

from django.contrib.auth import login
from django.contrib.auth.forms import SetPasswordForm
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods

from jobs_app.invitations import accept_invitation, find_invitation
from jobs_app.models import Invitation

BACKEND = "django.contrib.auth.backends.ModelBackend"


@sensitive_post_parameters()
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def invitation_page(request: HttpRequest) -> HttpResponse:
    """The secret of the link is its fragment, which no log has: the page sends it as a field of a form."""
    text, now = request.POST.get("code", ""), timezone.now()
    found = find_invitation(text) if text else None
    if found is None or found.state_at(now) != Invitation.State.OPEN:
        return _show(request, asked=bool(text), found=found)
    form = SetPasswordForm(found.user, request.POST if "new_password1" in request.POST else None)
    if not form.is_valid():
        return _show(request, asked=True, found=found, form=form, code=text)
    if not accept_invitation(found, form.cleaned_data["new_password1"], now=now):
        return _show(request, asked=True, found=find_invitation(text))
    login(request, found.user, backend=BACKEND)
    return redirect("home")


def _show(request: HttpRequest, *, found: Invitation | None, **context: Any) -> HttpResponse:
    state = found.state_at(timezone.now()) if found else ""
    return render(request, "registration/invitation.html", {**context, "invitation": found, "state": str(state)})
