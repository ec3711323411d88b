"""Pages of the site: its state, retention, and how to get the client."""

import os
from typing import Any

from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.db import DatabaseError
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.utils.functional import SimpleLazyObject
from django.views.decorators.http import require_safe

from accounting_app.models import RetentionRun
from connections_app.agents.program import agent_package, install_script
from jobs_app.job_archive import archive_files
from jobs_app.models import SiteAnnouncement, Team
from operations.backup import last_backup
from operations.client_wheel import client_wheel, wheel_name
from operations.health import scheduler_health
from operations.readiness import what_is_missing
from operations.retention import EVERY, RETENTION_RULES, count_expired
from operations.site import engines, host, processes, settings_of, versions
from scheduler_app.models import PolicySetting
from web.pages.base import SignedInRequest
from web.pages.templatetags.terms import TERMS


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


def wheel_address(request: HttpRequest) -> dict[str, Any]:
    """Context processor: address of the wheel, as the reader reaches the service."""
    address = SimpleLazyObject(lambda: request.build_absolute_uri(reverse("client-wheel", args=[wheel_name()])))
    return {"wheel_address": address}


def texts_of_site(request: HttpRequest) -> dict[str, Any]:
    """Context processor: the page's time zone, announcements, and whom to ask for help."""
    return {
        "ZONE": timezone.get_current_timezone_name(),
        "announcements": SimpleLazyObject(lambda: _announcements(request)),
        "help_contact": settings.MOTLEY_HELP_CONTACT,
    }


def _announcements(request: HttpRequest) -> list[SiteAnnouncement]:
    """Those in force; before login only those that are meant for it."""
    found = SiteAnnouncement.objects.in_force(timezone.now())
    try:
        return list(found if request.user.is_authenticated else found.filter(before_login=True))
    except DatabaseError:  # the page that says so has to be shown
        return []


@login_required
@require_safe
def glossary_page(request: SignedInRequest) -> HttpResponse:
    """Words that pages explain."""
    return render(request, "pages/glossary.html", {"terms": TERMS})


@require_safe
def client_page(request: HttpRequest) -> HttpResponse:
    """How to connect a terminal; also a page for `pip --find-links`."""
    return render(request, "pages/client.html")


@require_safe
def wheel(request: HttpRequest, name: str) -> HttpResponse:
    """The wheel of the version that this service runs."""
    if name != wheel_name():
        raise Http404
    return HttpResponse(client_wheel(), content_type="application/zip")


@require_safe
def agent_install(request: HttpRequest) -> HttpResponse:
    """Script that makes a machine a server of the site, with a join token."""
    url = request.build_absolute_uri("/").rstrip("/")  # as the machine reaches the service
    return HttpResponse(install_script(url), content_type="text/x-shellscript; charset=utf-8")


@require_safe
def agent_program(request: HttpRequest) -> HttpResponse:
    """The agent of the release that this service runs."""
    return HttpResponse(agent_package(), content_type="application/zip")
