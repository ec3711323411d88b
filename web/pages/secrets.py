"""Secrets page: those of the user and of the user's teams, without their values."""

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST

from jobs_app.forms import SecretForm
from jobs_app.models import Secret
from jobs_app.secrets import delete_secret, set_secret
from web.pages.base import DOMAIN_ERRORS, SignedInRequest, show_error


@login_required
@never_cache
@sensitive_post_parameters("value")
@require_http_methods(["GET", "HEAD", "POST"])
def secrets(request: SignedInRequest) -> HttpResponse:
    form = SecretForm(request.POST or None, user=request.user)
    if request.method == "POST" and form.is_valid():
        secret = set_secret(
            form.cleaned_data["name"], form.cleaned_data["value"], team=form.cleaned_data["team"], actor=request.user
        )
        messages.success(request, f"{secret} is set. Name it in a job: secrets: [{secret.name}].")
        return redirect("secrets")
    found = Secret.objects.visible_to(request.user).select_related("team", "user", "changed_by")
    return render(request, "pages/secrets.html", {"form": form, "secrets": found})


@login_required
@require_POST
def delete(request: SignedInRequest, pk: int) -> HttpResponse:
    secret = get_object_or_404(Secret.objects.visible_to(request.user), pk=pk)
    try:
        delete_secret(secret, actor=request.user)
        messages.success(request, f"{secret} is deleted.")
    except DOMAIN_ERRORS as error:
        show_error(request, error)
    return redirect("secrets")
