"""Account page: the time zone of a person."""

from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from cluster_app.models.validators import time_zones, zone_is_known
from jobs_app.models import PersonalSettings
from web.pages.base import SignedInRequest
from web.pages.time_zones import COOKIE, zone_named

BROWSER = ""
OUTSIDE_LISTS = ("Etc/", "SystemV/", "US/", "posix/", "right/")


class AccountForm(forms.Form):
    """Time zone of the pages: that of the browser, or one of the tz database."""

    time_zone = forms.ChoiceField(
        required=False, validators=[lambda name: zone_is_known(name) if name else None], help_text="Of all pages."
    )

    def __init__(self, *args: Any, browser: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        field = self.fields["time_zone"]
        assert isinstance(field, forms.ChoiceField)  # noqa: S101 - declared so
        field.choices = [(BROWSER, f"that of the browser ({browser})"), ("UTC", "UTC"), *_zones()]


def _zones() -> list[tuple[str, str]]:
    """Zones by place: Africa/Abidjan and so on."""
    names = (name for name in time_zones() if "/" in name and not name.startswith(OUTSIDE_LISTS))
    return [(name, name.replace("_", " ")) for name in sorted(names)]


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def account_page(request: SignedInRequest) -> HttpResponse:
    told = request.COOKIES.get(COOKIE, "")
    browser = told if zone_named(told) else "unknown without JavaScript: UTC"
    mine = PersonalSettings.objects.filter(user=request.user).first() or PersonalSettings(user=request.user)
    form = AccountForm(request.POST or None, initial={"time_zone": mine.time_zone}, browser=browser)
    if request.method != "POST" or not form.is_valid():
        return render(request, "pages/account.html", {"form": form})
    PersonalSettings.objects.update_or_create(user=request.user, defaults={"time_zone": form.cleaned_data["time_zone"]})
    messages.success(request, "Your settings are saved.")
    return redirect("account")
