"""What a person keeps here for themselves: tokens for scripts, and the password."""

from datetime import datetime

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.contrib.auth.forms import PasswordChangeForm
from django.contrib.auth.mixins import LoginRequiredMixin
from django.contrib.auth.views import PasswordChangeView
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse_lazy
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST

from audit_app.services import note
from jobs_app.forms import TokenForm
from jobs_app.models import ApiToken
from jobs_app.services import issue_token, revoke_token
from scheduler_app.views.visit import Visit


@login_required
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def tokens(request: Visit) -> HttpResponse:
    """One's own tokens; the answer to a new one is the only page that ever shows its text."""
    now = timezone.now()
    if request.method != "POST":
        return _page(request, TokenForm(user=request.user), now)
    form = TokenForm(request.POST, user=request.user)
    if not form.is_valid():
        return _page(request, form, now)
    text = issue_token(
        request.user,
        name=form.cleaned_data["name"],
        scope=ApiToken.Scope(form.cleaned_data["scope"]),
        expires_at=form.expires_at(now),
    )
    return _page(request, TokenForm(user=request.user), now, new_token=text)


def _page(request: Visit, form: TokenForm, now: datetime, *, new_token: str = "") -> HttpResponse:
    mine = ApiToken.objects.filter(user=request.user)
    good = mine.valid(now)
    context = {
        "form": form,
        "new_token": new_token,
        "valid": good,
        "over": mine.exclude(pk__in=good.values("pk"))[:20],
    }
    return render(request, "scheduler_app/tokens.html", context)


@login_required
@require_POST
def revoke(request: Visit, pk: int) -> HttpResponse:
    token = get_object_or_404(ApiToken, pk=pk, user=request.user)
    revoke_token(token)
    messages.success(request, f"{token.name} is revoked: whatever uses it is refused from now on.")
    return redirect("tokens")


class ChangePassword(LoginRequiredMixin, PasswordChangeView):
    """The session stays; every other one of this person ends."""

    template_name = "registration/password.html"
    success_url = reverse_lazy("home")

    def form_valid(self, form: PasswordChangeForm) -> HttpResponse:
        answer = super().form_valid(form)
        note("password.change", actor=form.user, target=form.user.get_username(), target_id=form.user.pk)
        messages.success(self.request, "Your password is changed; you are signed out everywhere else.")
        return answer
