"""Retention page, for staff: what is kept for how long, what is due for deletion, and the last runs."""

from typing import Any

from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.http import HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_safe

from accounting_app.models import RetentionRun
from jobs_app.job_archive import archive_files
from jobs_app.models import Team
from operations.retention import EVERY, RETENTION_RULES, count_expired
from web.pages.base import SignedInRequest

LATEST_RUNS = 24


@login_required
@require_safe
def retention_page(request: SignedInRequest) -> HttpResponse:
    if not request.user.is_staff:
        raise PermissionDenied
    due, runs, files = count_expired(timezone.now()), list(RetentionRun.objects.all()[:LATEST_RUNS]), archive_files()
    last = runs[0] if runs else None
    context: dict[str, Any] = {
        "rules": [(rule, due[rule.label], last.removed.get(rule.label) if last else None) for rule in RETENTION_RULES],
        "runs": [(run, sum(run.removed.values())) for run in runs],
        "faults": last.faults if last else {},
        "teams": Team.objects.all(),
        "every": EVERY,
        "archive": settings.MOTLEY_ARCHIVE_ROOT,
        "archive_files": len(files),
        "archive_mib": sum(path.stat().st_size for path in files) / (1 << 20),
    }
    return render(request, "pages/retention.html", context)
