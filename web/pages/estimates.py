"""Page on how good estimates are: forecasts of durations and rates beside what they were."""

from typing import Any

from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from accounting_app.durations.accuracy import MOST_JUDGED, WITHIN_LIMITS, Moment, judge_forecasts
from accounting_app.durations.boosted_model import read_card, read_failure
from accounting_app.durations.rate_accuracy import MOST_READ, judge_rates
from estimation.accuracy import FEWEST
from estimation.boosted_durations import FEWEST_JOBS
from web.pages.base import SignedInRequest


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
        "fewest": FEWEST,
        "fewest_learned": FEWEST_JOBS,
        "expected": WITHIN_LIMITS,
    }
    return render(request, "pages/estimates.html", context)
