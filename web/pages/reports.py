"""Pages of accounts and estimates: usage, energy, monthly report, estimates, forecasts."""

from datetime import date, datetime, timedelta
from typing import Any

from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_safe

from accounting_app.durations.accuracy import MOST_JUDGED, WITHIN_LIMITS, Moment, judge_forecasts
from accounting_app.durations.boosted_model import read_card, read_failure
from accounting_app.durations.rate_accuracy import MOST_READ, judge_rates
from accounting_app.energy.report import HORIZONS_H, energy_by_type
from accounting_app.fairness.budgets import budgets_seen_by
from accounting_app.fairness.csv_reports import report_rows, usage_rows
from accounting_app.fairness.monthly_report import known_since, read_reports
from accounting_app.fairness.team_months import month_after, month_name, month_of
from accounting_app.fairness.usage_report import Period, usage_between
from estimation.accuracy import FEWEST as FEWEST_ESTIMATES
from estimation.boosted_durations import FEWEST_JOBS
from insight_app.models import ForecastRun
from insight_app.start_forecasts.accuracy import COVERED, FEWEST, MOST_OUTCOMES, judge_by_team, judge_job_forecasts
from insight_app.start_forecasts.deadlines import judge_deadlines
from jobs_app.measurement.energy import Energy
from web.pages.base import SignedInRequest, ToldReader
from web.rest.downloads import csv_answer


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


@login_required
@require_safe
def energy_page(request: SignedInRequest) -> HttpResponse:
    types = energy_by_type(timezone.now(), for_staff=request.user.is_staff)
    context = {"types": types, "hours": HORIZONS_H, "saved_w": sum(one.saved_w for one in types)}
    return render(request, "pages/energy.html", context)


@login_required
@require_safe
def report_page(request: SignedInRequest) -> HttpResponseBase:
    """A month, by default this one; with `?format=csv` for a spreadsheet."""
    now = timezone.now()
    month, first = _month(request.GET.get("month", ""), now.date()), known_since(now)
    reports = read_reports(month, request.user, now)
    if request.GET.get("format") == "csv":
        return csv_answer(report_rows(reports), name=f"report-{month_name(month)}.csv")
    context: dict[str, Any] = {
        "reports": reports,
        "month": month,
        "currency": settings.MOTLEY_CURRENCY,
        "before": month_of(month - timedelta(days=1)) if month > first else None,
        "after": max(month_after(month), first) if month < month_of(now.date()) else None,
        "known_since": first,
    }
    return render(request, "pages/report.html", context)


def _month(text: str, today: date) -> date:
    if not text:
        return month_of(today)
    try:
        month = datetime.strptime(text, "%Y-%m").date()  # noqa: DTZ007  # a month has no zone
    except ValueError:
        raise Http404(ToldReader(f"month={text[:60]} is no month: write one as 2026-11.")) from None
    if month > today:
        raise Http404(ToldReader(f"The month {text} has not begun."))
    return month


@login_required
@require_safe
def estimates_page(request: SignedInRequest) -> HttpResponse:
    judged = judge_forecasts()
    of_moment = {moment: [one for one in judged if one.moment == moment] for moment in Moment}
    context: dict[str, Any] = {
        "moments": [(moment, found) for moment, found in of_moment.items() if found],
        "most": MOST_JUDGED,
        "rates": judge_rates(),
        "model": read_card(),
        "failure": read_failure(),
        "most_attempts": MOST_READ,
        "fewest": FEWEST_ESTIMATES,
        "fewest_learned": FEWEST_JOBS,
        "expected": WITHIN_LIMITS,
    }
    return render(request, "pages/estimates.html", context)


@login_required
@require_safe
def forecasts_page(request: SignedInRequest) -> HttpResponse:
    judged = judge_job_forecasts()
    of_event = {event: [one for one in judged if one.event == event] for event in ("start", "finish")}
    context = {
        "deadlines": judge_deadlines(),
        "teams": judge_by_team(request.user),
        "events": [(event, found) for event, found in of_event.items() if found],
        "most": MOST_OUTCOMES,
        "fewest": FEWEST,
        "expected": COVERED,
        "run": ForecastRun.objects.exclude(finished_at=None).first(),
    }
    return render(request, "pages/forecasts.html", context)
