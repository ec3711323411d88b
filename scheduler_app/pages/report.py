"""Report page: what each team had in a month, and the same as CSV."""

import csv
from collections.abc import Iterable, Iterator
from datetime import date, datetime, timedelta
from typing import Any

from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_safe

from scheduler_app.fairness.monthly_report import TeamReport, known_since, read_reports
from scheduler_app.fairness.team_months import month_after, month_of
from scheduler_app.pages.base import SignedInRequest
from simulation.traces.motley_csv import as_text

COLUMNS = (
    *("month", "team", "kind", "name", "gpu_hours", "work_gpu_hours", "cost", "currency", "energy_kwh"),
    *("energy_source", "succeeded", "failed", "cancelled", "timed_out", "wait_s", "wait_p95_s", "restarts"),
    *("lost_gpu_hours", "failed_gpu_hours", "idle_gpu_hours"),
)
"""Of a team all; of a GPU type and of a member (`kind`) the first."""


@login_required
@require_safe
def report_page(request: SignedInRequest) -> HttpResponse:
    """A month, by default this one; with `?format=csv` for a spreadsheet."""
    now = timezone.now()
    month, first = _month(request.GET.get("month", ""), now.date()), known_since(now)
    reports = read_reports(month, request.user, now)
    if request.GET.get("format") == "csv":
        return _as_csv(reports, month)
    context: dict[str, Any] = {
        "reports": reports,
        "month": month,
        "currency": settings.MOTLEY_CURRENCY,
        "before": month_of(month - timedelta(days=1)) if month > first else None,
        "after": month_after(month) if month < month_of(now.date()) else None,
        "known_since": first,
    }
    return render(request, "scheduler_app/report.html", context)


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


def _as_csv(reports: Iterable[TeamReport], month: date) -> HttpResponse:
    headers = {"Content-Disposition": f'attachment; filename="report-{month:%Y-%m}.csv"'}
    answer = HttpResponse(content_type="text/csv", headers=headers)
    written = csv.writer(answer)
    written.writerow(COLUMNS)
    for report in reports:
        for row in _rows(report):
            written.writerow([*row, *[""] * (len(COLUMNS) - len(row))])
    return answer


def _rows(report: TeamReport) -> Iterator[list[Any]]:
    """The team, then its GPU types, then its members."""
    whose, currency = [f"{report.month:%Y-%m}", as_text(report.team)], as_text(settings.MOTLEY_CURRENCY)
    amounts = [_rounded(report.gpu_hours), _rounded(report.work_gpu_hours), _rounded(report.cost, 2), currency]
    energy = [_rounded(report.energy_kwh, 4), report.energy.source.value]
    waste = [report.lost_gpu_hours, report.failed_gpu_hours, report.idle_gpu_hours]
    yield [*whose, "team", "", *amounts, *energy, *_of_jobs(report), *map(_rounded, waste)]
    for kind in report.types:
        hours = [_rounded(kind.gpu_hours), _rounded(kind.work_gpu_hours)]
        yield [*whose, "gpu_type", as_text(kind.gpu_type), *hours, _rounded(kind.cost or None, 2), currency]
    for member in report.members:
        hours = [_rounded(member.gpu_hours), _rounded(member.work_gpu_hours)]
        yield [*whose, "member", as_text(member.username), *hours]


def _of_jobs(report: TeamReport) -> list[Any]:
    its = report.figures
    if its is None:
        return [""] * 7
    counts = [its.succeeded, its.failed, its.cancelled, its.timed_out]
    return [*counts, _rounded(its.wait_s, 1), _rounded(its.wait_p95_s, 1), its.restarts]


def _rounded(value: float | None, digits: int = 3) -> Any:
    return "" if value is None else round(value, digits)
