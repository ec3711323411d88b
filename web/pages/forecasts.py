"""Page on how good forecasts of starts and ends are."""

from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from insight_app.models import ForecastRun
from insight_app.start_forecasts.accuracy import COVERED, FEWEST, MOST_OUTCOMES, judge_by_team, judge_job_forecasts
from insight_app.start_forecasts.deadlines import judge_deadlines
from web.pages.base import SignedInRequest


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
