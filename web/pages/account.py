"""Account pages: API tokens, password and the activity log."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import django_filters
from django.contrib import messages
from django.contrib.auth import login
from django.contrib.auth.decorators import login_required
from django.contrib.auth.forms import SetPasswordForm
from django.contrib.auth.mixins import LoginRequiredMixin
from django.contrib.auth.views import PasswordChangeView
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse_lazy
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from audit_app.models import Action, AuditEntry
from audit_app.services import note
from jobs_app.errors import InvalidSpec, NotAllowed
from jobs_app.filters import MomentFilter
from jobs_app.forms import TokenForm
from jobs_app.invitations import accept_invitation, find_invitation
from jobs_app.models import ApiToken, Invitation
from jobs_app.password_forms import OwnPasswordForm
from jobs_app.tokens import issue_token, revoke_token
from web.pages.base import SignedInRequest, paginate


@login_required
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def tokens(request: SignedInRequest) -> HttpResponse:
    """The user's API tokens. The response to a POST is the only page that shows the text of a token."""
    now = timezone.now()
    if request.method != "POST":
        return _page(request, TokenForm(user=request.user), now)
    form = TokenForm(request.POST, user=request.user)
    if not form.is_valid():
        return _page(request, form, now)
    try:
        text = issue_token(
            request.user,
            name=form.cleaned_data["name"],
            scope=ApiToken.Scope(form.cleaned_data["scope"]),
            expires_at=form.expires_at(now),
        )
    except NotAllowed:  # the login has ended in the meantime: the page leads to another
        return redirect("tokens")
    except InvalidSpec as refusal:
        form.add_error(None, refusal.faults[0]["detail"])
        return _page(request, form, now)
    return _page(request, TokenForm(user=request.user), now, new_token=text)


def _page(request: SignedInRequest, form: TokenForm, now: datetime, *, new_token: str = "") -> HttpResponse:
    mine = ApiToken.objects.filter(user=request.user)
    good = mine.valid(now)
    context = {
        "form": form,
        "new_token": new_token,
        "valid": good,
        "over": mine.exclude(pk__in=good.values("pk"))[:20],
    }
    return render(request, "pages/tokens.html", context)


@login_required
@require_POST
def revoke(request: SignedInRequest, pk: int) -> HttpResponse:
    """Revoke one of the user's tokens."""
    token = get_object_or_404(ApiToken, pk=pk, user=request.user)
    revoke_token(token)
    messages.success(request, f"Token {token.name} is revoked and no longer accepted.")
    return redirect("tokens")


class ChangePassword(LoginRequiredMixin, PasswordChangeView):
    """Change the password; all other sessions of the user end."""

    form_class = OwnPasswordForm
    template_name = "registration/password.html"
    success_url = reverse_lazy("home")

    @transaction.atomic
    def form_valid(self, form: OwnPasswordForm) -> HttpResponse:  # type: ignore[override]
        answer = super().form_valid(form)
        note("password.change", actor=form.user, target=form.user.get_username(), target_id=form.user.pk)
        messages.success(self.request, "Your password has been changed; you are logged out everywhere else.")
        return answer


THINGS = {
    **dict.fromkeys(("login", "logout", "password"), "logging in"),
    **dict.fromkeys(("quota", "budget", "groups"), "team"),
    "gpu_type": "GPU type",
    "gpu": "GPU",
    "admin": "administration",
    "backup": "service",
}
"""Groups of actions in the filter, where they are not named as the first part of the action."""


class AuditFilter(django_filters.FilterSet):  # type: ignore[misc]
    """Filters of the activity log."""

    actor = django_filters.CharFilter(field_name="actor_name", label="who")
    action = django_filters.ChoiceFilter(choices=Action.choices, label="did what")
    target = django_filters.CharFilter(field_name="target_id", label="to which id")
    since = MomentFilter(field_name="at", lookup_expr="gte", label="since")

    class Meta:
        model = AuditEntry
        fields: tuple[str, ...] = ()


def actions_by_thing() -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Actions in groups by what is acted on, in the order of the enumeration: jobs, nodes and so on."""
    things: dict[str, list[tuple[str, str]]] = {}
    for value, label in Action.choices:
        thing = str(value).partition(".")[0]
        things.setdefault(THINGS.get(thing, thing.replace("_", " ")), []).append((str(value), str(label)))
    yield from things.items()


@login_required
@require_safe
def audit(request: SignedInRequest) -> HttpResponse:
    """Activity log: all entries for staff, the user's own for others."""
    entries = AuditEntry.objects.all() if request.user.is_staff else AuditEntry.objects.filter(actor=request.user)
    filtered = AuditFilter(request.GET, queryset=entries)
    asked = any(request.GET.get(name) for name in AuditFilter.base_filters)
    context = paginate(request, filtered.qs) | {"filter": filtered, "asked": asked, "actions": list(actions_by_thing())}
    return render(request, "pages/audit.html", context)


BACKEND = "django.contrib.auth.backends.ModelBackend"


@sensitive_post_parameters()
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def invitation_page(request: HttpRequest) -> HttpResponse:
    """Invitation page; the link's secret is its fragment, which is in no log, and is sent as a form field."""
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
