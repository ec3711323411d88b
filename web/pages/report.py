"""Report page: what each team had in a month, and the same as CSV."""

from datetime import date, datetime, timedelta
from typing import Any

from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.http import Http404
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_safe

from accounting_app.fairness.csv_reports import report_rows
from accounting_app.fairness.monthly_report import known_since, read_reports
from accounting_app.fairness.team_months import month_after, month_of
from web.pages.base import SignedInRequest
from web.rest.spreadsheets import csv_answer


@login_required
@require_safe
def report_page(request: SignedInRequest) -> HttpResponseBase:
    """A month, by default this one; with `?format=csv` for a spreadsheet."""
    now = timezone.now()
    month, first = _month(request.GET.get("month", ""), now.date()), known_since(now)
    reports = read_reports(month, request.user, now)
    if request.GET.get("format") == "csv":
        return csv_answer(report_rows(reports), name=f"report-{month:%Y-%m}.csv")
    context: dict[str, Any] = {
        "reports": reports,
        "month": month,
        "currency": settings.MOTLEY_CURRENCY,
        "before": month_of(month - timedelta(days=1)) if month > first else None,
        "after": month_after(month) if month < month_of(now.date()) else None,
        "known_since": first,
    }
    return render(request, "pages/report.html", context)


def _month(text: str, today: date) -> date:
    if not text:
        return month_of(today)
    try:
        month = datetime.strptime(text, "%Y-%m").date()  # noqa: DTZ007  # a month has no zone
    except ValueError:
        raise Http404 from None
    if month > today:
        raise Http404
    return month
