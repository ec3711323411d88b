"""Who did what."""

from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from audit_app.filters import AuditFilter
from audit_app.models import AuditEntry
from scheduler_app.views.visit import Visit, one_page


@login_required
@require_safe
def audit(request: Visit) -> HttpResponse:
    """All of it for staff; for others what they did themselves."""
    entries = AuditEntry.objects.all() if request.user.is_staff else AuditEntry.objects.filter(actor=request.user)
    filtered = AuditFilter(request.GET, queryset=entries)
    asked = any(request.GET.get(name) for name in AuditFilter.base_filters)
    context = one_page(request, filtered.qs) | {"filter": filtered, "asked": asked}
    return render(request, "scheduler_app/audit.html", context)
