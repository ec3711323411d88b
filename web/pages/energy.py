"""Energy page: per GPU type the nodes in use, their forecast, which nodes could sleep, and the power that saves."""

from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_safe

from accounting_app.energy.report import HORIZONS_H, energy_by_type
from web.pages.base import SignedInRequest


@login_required
@require_safe
def energy_page(request: SignedInRequest) -> HttpResponse:
    types = energy_by_type(timezone.now(), for_staff=request.user.is_staff)
    context = {"types": types, "hours": HORIZONS_H, "saved_w": sum(one.saved_w for one in types)}
    return render(request, "pages/energy.html", context)
