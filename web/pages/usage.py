"""Usage page: budgets; GPU hours, energy and cost of teams by month, as a table and as CSV."""

from datetime import date
from typing import Any

from django.contrib.auth.decorators import login_required
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_safe

from accounting_app.fairness.budgets import budgets_seen_by
from accounting_app.fairness.csv_reports import usage_rows
from accounting_app.fairness.usage_report import Period, usage_between
from jobs_app.measurement.energy import Energy
from web.pages.base import SignedInRequest
from web.rest.spreadsheets import csv_answer


@login_required
@require_safe
def usage_page(request: SignedInRequest) -> HttpResponseBase:
    """The last twelve months; with `?format=csv` for a spreadsheet."""
    today = timezone.now().date()
    rows = usage_between(_a_year_before(today), today, request.user, by=Period.MONTH)
    if request.GET.get("format") == "csv":
        return csv_answer(usage_rows(rows, Period.MONTH), name="usage-by-month.csv")
    context: dict[str, Any] = {
        "budgets": budgets_seen_by(request.user, timezone.now()),
        "rows": rows,
        "gpu_hours": sum(row.gpu_hours for row in rows),
        "work_gpu_hours": sum(row.work_gpu_hours for row in rows),
        "cost": sum(row.cost for row in rows),
        "energy": Energy.sum(row.energy for row in rows),
    }
    return render(request, "pages/usage.html", context)


def _a_year_before(today: date) -> date:
    """First day of the month eleven months before."""
    return date(today.year - 1 + today.month // 12, today.month % 12 + 1, 1)
