"""Runs of forecasts: after rounds, in a process of its own, one at a time."""

import logging
import subprocess
from datetime import datetime, timedelta
from functools import partial

from django.conf import settings
from django.utils import timezone

from forecast.intervals import forecast
from insight_app.models import ForecastRun, JobForecast
from insight_app.own_process import run_manage, start_in_a_thread
from insight_app.start_forecasts.deadlines import close_deadlines
from insight_app.start_forecasts.forecast_store import close_outcomes, record_forecasts
from insight_app.start_forecasts.planned import planned_hours
from insight_app.start_forecasts.reading import read_forecast_input
from jobs_app.models import Job
from scheduler_app.models import PolicySetting, Round
from scheduler_app.round.tick import round_turn

log = logging.getLogger(__name__)


class ForecastsAreRunning(Exception):
    """Only one run of forecasts is made at a time."""


LEAST_PAUSE = timedelta(seconds=30)
PART = 5
"""Between the beginnings of two runs lie so many durations of the first: a fifth of one core at most."""
BUDGET_S = 20.0
"""Time after which no further future is played."""
LONGEST_PAUSE = timedelta(minutes=10)
"""Between the beginnings of two runs at most, however long the first took."""
STOPPED_AFTER = timedelta(minutes=4)
"""A process that has not ended by then is stopped."""
LONGEST_RUN = timedelta(minutes=5)
"""A run that has not ended by then is taken to be lost, with the scheduler that began it."""
MOST_KEPT = 100


# -- when ----------------------------------------------------------------------------------------------------------


def round_turn_and_forecasts(holder: str, now: datetime) -> bool:
    """A turn of rounds, and the run of forecasts that is due after it; False if another scheduler does them."""
    if not round_turn(holder, now):
        return False
    forecast_when_due(now)
    return True


def forecast_when_due(now: datetime) -> None:
    """Start a run in a process of its own, if one is due."""
    if settings.MOTLEY_FORECASTS and (run := claim_run(now)):
        start_in_a_thread(partial(_run_in_a_process, run.pk), name="forecasts")


def claim_run(now: datetime) -> ForecastRun | None:
    """Claim the run that is due, by a conditional insert; None if none is due."""
    last = ForecastRun.objects.order_by("-round").first()
    if last is not None and last.started_at <= now < _next_at(last):  # it starts after now: a clock was set back
        return None
    newest = _newest_round()
    if newest is None or (last is not None and newest <= last.round) or not _is_wanted():
        return None
    run, is_new = ForecastRun.objects.get_or_create(round=newest, defaults={"started_at": now})
    return run if is_new else None


def _next_at(last: ForecastRun) -> datetime:
    """When the next run may begin."""
    if last.finished_at is None:
        return last.started_at + LONGEST_RUN
    pause = max(LEAST_PAUSE, PART * (last.finished_at - last.started_at))
    return last.started_at + min(pause, LONGEST_PAUSE)


def _newest_round() -> int | None:
    return Round.objects.committed().order_by("-number").values_list("number", flat=True).first()


def _is_wanted() -> bool:
    """Whether there are jobs, or forecasts of jobs that have ended."""
    return Job.objects.unfinished().exists() or JobForecast.objects.exists()


def _run_in_a_process(pk: int) -> None:
    try:
        run_manage("forecastjobs", str(pk), at_most=STOPPED_AFTER)
    except (OSError, subprocess.SubprocessError) as error:
        log.exception("jobs were not forecast; a later round tries again")
        note_failed(pk, error, timezone.now())


def note_failed(pk: int, error: Exception, now: datetime) -> None:
    """End the run of a process that did not end it, so that the next waits as after any other."""
    message = f"Its process was lost. {type(error).__name__}: {error}"[:500]
    ForecastRun.objects.filter(pk=pk, finished_at=None).update(finished_at=now, message=message)


# -- run -----------------------------------------------------------------------------------------------------------


def run_now(now: datetime) -> ForecastRun | None:
    """A run for a command by hand, which begins now; None: no round has been committed yet.

    Raises
    ------
    ForecastsAreRunning
        A run has not ended yet, and is not taken to be lost.
    """
    if ForecastRun.objects.filter(finished_at=None, started_at__gt=now - LONGEST_RUN, started_at__lte=now).exists():
        raise ForecastsAreRunning("a run of forecasts has not ended yet")
    newest = _newest_round()
    if newest is None:
        return None
    begun = {"started_at": now, "finished_at": None, "planned": None}  # its plan begins with it: an old one is none
    return ForecastRun.objects.update_or_create(round=newest, defaults=begun)[0]


def forecast_jobs(run: ForecastRun, now: datetime) -> ForecastRun:
    """Forecast the jobs of the queue and record that; where it fails, the row says why, and the last forecasts stay."""
    try:
        _read_forecast_and_record(run, now)
    except Exception as error:  # a policy may raise whatever it wants; the next round is forecast again
        log.exception("the run of forecasts failed")
        run.message = f"{type(error).__name__}: {error}"[:500]
    run.finished_at = timezone.now()
    run.save()
    kept = ForecastRun.objects.values_list("pk", flat=True)[:MOST_KEPT]
    ForecastRun.objects.exclude(pk__in=list(kept)).delete()
    return run


def _read_forecast_and_record(run: ForecastRun, now: datetime) -> None:
    close_outcomes()  # of its own: what has come true stays known where the forecast fails
    close_deadlines(now)
    run.jobs, run.left_out, run.draws, run.message = 0, 0, 0, ""
    asked = read_forecast_input(now)
    run.planned = planned_hours(asked, PolicySetting.objects.current())
    run.save(update_fields=["planned"])  # pages show it before the futures are played
    found = None
    if asked.jobs:
        found = forecast(asked.present, asked.unknowns, asked.rounds, budget_s=BUDGET_S, seed=run.round)
    record_forecasts(asked, found, now)
    run.jobs, run.left_out, run.draws = len(asked.jobs), asked.left_out, found.draws if found else 0
