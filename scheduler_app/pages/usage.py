"""Usage page: GPU hours, energy and cost of teams by month, as a table and as CSV."""

import csv
from datetime import date
from typing import Any

from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_safe

from jobs_app.measurement.energy import Energy
from scheduler_app.fairness.usage_report import Period, Usage, usage_between
from scheduler_app.pages.base import SignedInRequest

COLUMNS = ("month", "team", "gpu_type", "gpu_hours", "work_gpu_hours", "cost", "energy_kwh", "energy_source")


@login_required
@require_safe
def usage_page(request: SignedInRequest) -> HttpResponse:
    """The last twelve months; with `?format=csv` for a spreadsheet."""
    today = timezone.now().date()
    rows = usage_between(_a_year_before(today), today, request.user, by=Period.MONTH)
    if request.GET.get("format") == "csv":
        return _as_csv(rows)
    context: dict[str, Any] = {
        "rows": rows,
        "gpu_hours": sum(row.gpu_hours for row in rows),
        "work_gpu_hours": sum(row.work_gpu_hours for row in rows),
        "cost": sum(row.cost for row in rows),
        "energy": Energy.sum(row.energy for row in rows),
    }
    return render(request, "scheduler_app/usage.html", context)


def _a_year_before(today: date) -> date:
    """First day of the month eleven months before."""
    return date(today.year - 1 + today.month // 12, today.month % 12 + 1, 1)


def _as_csv(rows: list[Usage]) -> HttpResponse:
    answer = HttpResponse(
        content_type="text/csv", headers={"Content-Disposition": 'attachment; filename="usage-by-month.csv"'}
    )
    written = csv.writer(answer)
    written.writerow(COLUMNS)
    for row in rows:
        amounts = (round(row.gpu_hours, 3), round(row.work_gpu_hours, 3), round(row.cost, 2))
        energy = "" if row.energy_kwh is None else round(row.energy_kwh, 4)
        written.writerow((f"{row.period:%Y-%m}", row.team, row.gpu_type, *amounts, energy, row.energy_source.value))
    return answer
