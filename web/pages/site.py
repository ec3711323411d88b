"""Site page, for staff: versions, host, engines, processes, policy, retention, last backup, settings."""

import os
from typing import Any

from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.http import HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_safe

from accounting_app.models import RetentionRun
from operations.backup import last_backup
from operations.health import scheduler_health
from operations.readiness import what_is_missing
from operations.site import engines, host, processes, settings_of, versions
from scheduler_app.models import PolicySetting
from web.pages.base import SignedInRequest


@login_required
@require_safe
def site_page(request: SignedInRequest) -> HttpResponse:
    if not request.user.is_staff:
        raise PermissionDenied
    now = timezone.now()
    context: dict[str, Any] = {
        "missing": what_is_missing(),
        "versions": list(versions()),
        "host": list(host()),
        "engines": engines(),
        "processes": processes(now),
        "heartbeat": scheduler_health(now),
        "policy": PolicySetting.objects.current(),
        "retention": RetentionRun.objects.first(),
        "backup": last_backup(),
        "settings": settings_of(os.environ),
    }
    return render(request, "pages/site.html", context)
