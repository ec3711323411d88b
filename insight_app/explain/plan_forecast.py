"""Forecast of a job that has not been submitted, by Monte Carlo: it is added to the present queue in a few futures."""

import logging
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from django.conf import settings
from django.contrib.auth.models import User

from forecast.calibration import Correction
from forecast.future import OutOfTime
from forecast.intervals import LEAST_DRAWS, Intervals, forecast
from insight_app.errors import TooManySolves
from insight_app.explain.dry_run_inputs import row_of
from insight_app.explain.solve_slots import solve_slots
from insight_app.gpu_prices.planned import PlannedHours, read_planned_hours
from insight_app.gpu_prices.wording import format_hours, is_told
from insight_app.models import JobForecast
from insight_app.start_forecasts.forecast_store import made_forecast, places_among_startable, present_row, read_played
from insight_app.start_forecasts.reading import ForecastInput, read_forecast_input
from insight_app.start_forecasts.showing import SWITCHED_OFF, ShownForecast
from jobs_app.models import Job
from jobs_app.submission.admission import Admitted
from jobs_app.submission.enqueue import draft

log = logging.getLogger(__name__)

DRAWS = 16
BUDGET_S = 1.0
"""Time after which no further future is played; with fewer than eight, up to `MOST_BUDGETS` times as long."""
MOST_JOBS = 1_000
"""Of more unfinished jobs the queue alone takes longer to read than a person waits for a plan."""
LEAST_PROMISED = 0.5
"""Probability below which a deadline is not promised."""
NOWHERE = "No node in service can run the job."


class PlannedForecast(NamedTuple):
    """The forecast of a job that has not been submitted, or why there is none."""

    forecast: ShownForecast | None
    why_none: str = ""
    others_wait_h: float | None = None
    """Hours that others wait for its fewest GPUs from its start to its end, by planned prices; None: not known."""
    promise: str = ""
    """What can be promised of its deadline, and what it costs others; empty: it has none, or none so near."""

    @property
    def cost_words(self) -> str:
        """What it costs others, as a sentence; empty: nothing, or it is not known."""
        waits_h = self.others_wait_h
        return f"By the plan, others wait {format_hours(waits_h)} for its GPUs." if is_told(waits_h) else ""


def forecast_plan(asked: Admitted, user: User, now: datetime) -> PlannedForecast:
    """Forecast the job as if it were submitted now; one at a time for each person, and few for all."""
    if why := _why_not(asked):
        return PlannedForecast(None, why)
    try:
        with solve_slots.slot_for(user):
            return _forecast(asked, now)
    except TooManySolves as error:
        return PlannedForecast(None, str(error))
    except Exception:  # a policy may raise whatever it wants; the plan stands without a forecast
        log.exception("a plan was not forecast")
        return PlannedForecast(None, "The forecast failed; the log of the service says why.")


def _why_not(asked: Admitted) -> str:
    """Why the job cannot be forecast; empty if it can."""
    if not settings.MOTLEY_FORECASTS:
        return SWITCHED_OFF
    if Job.objects.unfinished()[: MOST_JOBS + 1].count() > MOST_JOBS:
        return f"More than {MOST_JOBS:,} jobs are unfinished: a plan is not forecast then."
    return ""


def _forecast(asked: Admitted, now: datetime) -> PlannedForecast:
    row = row_of(draft(asked))._replace(created_at=now)
    read = read_forecast_input(now, also=[row], needs={row.id: _unfinished(asked)})
    if not read.jobs or read.jobs[-1].id != row.id:
        return PlannedForecast(None, "It waits for a job without a forecast." if asked.needs else NOWHERE)
    if (found := _play(read)) is None:
        return PlannedForecast(None, "The queue is too long to be played in the time that a plan may take.")
    shown, hours = _shown(read, found, now), read_planned_hours(now)
    waits_h = others_wait_h(shown, row.gpus_min, hours) if hours else None
    return PlannedForecast(shown, others_wait_h=waits_h, promise=promise_of(shown, waits_h))


def others_wait_h(shown: ShownForecast, gpus: int, hours: PlannedHours) -> float | None:
    """Hours that others wait while the job holds so many GPUs, between the medians of its start and end; pure."""
    start, end = shown.start and shown.start.median, shown.finish.median
    return hours.waiting_h(shown.gpu_type, gpus, start, end) if start and end else None


def promise_of(shown: ShownForecast, waits_h: float | None) -> str:
    """That the deadline is met, with what probability and at what cost, or before when the job is not done; pure."""
    if shown.in_time is None:
        return ""
    if shown.in_time < LEAST_PROMISED and shown.finish.low is not None:
        missed = f"it is met in {shown.in_time:.0%} of the futures"
        return f"The deadline cannot be promised: {missed}, in 90 % not before {shown.finish.low:%Y-%m-%d %H:%M} UTC."
    cost = f"; others wait {format_hours(waits_h)} for its GPUs" if is_told(waits_h) else ""
    return f"The deadline is met in {shown.in_time:.0%} of the futures{cost}."


def _unfinished(asked: Admitted) -> frozenset[UUID]:
    """The unfinished jobs that it depends on."""
    needs = [need["job"] for need in asked.needs]
    return frozenset(Job.objects.unfinished().filter(pk__in=needs).values_list("pk", flat=True) if needs else ())


def _play(read: ForecastInput) -> Intervals | None:
    """Simulate the futures; the last row is the planned job. None if there was time for too few futures."""
    last = len(read.jobs) - 1
    try:
        found = forecast(read.present, read.unknowns, read.rounds, draws=DRAWS, budget_s=BUDGET_S, watched=[last])
    except OutOfTime:
        return None
    return found if found.draws >= LEAST_DRAWS else None


def _shown(read: ForecastInput, found: Intervals, now: datetime) -> ShownForecast:
    last = len(read.jobs) - 1
    place = places_among_startable(read, found)[last]
    made = made_forecast(read, found, Correction.of(read_played(now)), last, place=place)
    return ShownForecast.of(JobForecast(**present_row(made, now)), waits=True)
