"""Store of forecasts: the present ones of all unfinished jobs, and a sample that is kept until the outcome is known.

Kept are a forecast at the submission, one at the start, and of some jobs one each hour. What is shown is corrected
by how those turned out that were kept before.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from heapq import nsmallest
from typing import Any, Literal, NamedTuple
from uuid import UUID
from zlib import crc32

import numpy as np
from django.db import transaction
from django.db.models import QuerySet

from database.bulk_insert import insert_many
from database.bulk_update import rewrite
from estimation.types import Floats
from forecast.calibration import Correction, ForecastClass, Outcome
from forecast.intervals import Intervals
from insight_app.models import DeadlineForecast, JobForecast, KeptForecast
from insight_app.start_forecasts.reading import ForecastInput
from jobs_app.models import Job, Team

Event = KeptForecast.Event
Occasion = KeptForecast.Occasion
QUANTILE_NAMES = ("low", "median", "high")
MOST_OUTCOMES = 2_000
"""Newest outcomes by which forecasts are corrected and judged."""
MOST_HOURLY = 500
"""Jobs of which a forecast is kept each hour, chosen by a hash of their ids, so that they stay the same."""
ROWS_PER_BATCH = 500
MISSED_AFTER = timedelta(seconds=15)
"""Time after the end of its interval from which a job starts later than foreseen."""
EVERY = timedelta(hours=1)
"""Least time between two kept forecasts of one job that are neither at its submission nor at its start."""


class ForeseenStart(NamedTuple):
    """The earliest end of the intervals that were shown of a job's start, and when the first of them passed."""

    by: datetime | None = None
    late_since: datetime | None = None

    def at(self, now: datetime) -> "ForeseenStart":
        """The same now: an end that has passed is not counted again."""
        if self.by is None or now - self.by < MISSED_AFTER:
            return self
        return ForeseenStart(None, self.late_since or self.by)


NOTHING_FORESEEN = ForeseenStart()


@dataclass(frozen=True, eq=False)
class MadeForecast:
    """Forecast of one job: quantiles (3,) of each event in seconds, as simulated and as shown."""

    job: UUID
    team_id: int
    known_length: bool
    runs: bool
    started_before: bool
    """Whether it has held GPUs before: its first start is no event to come."""
    played_s: Mapping[Event, Floats]
    shown_s: Mapping[Event, Floats]
    gpu_type: str
    type_part: float
    place: int
    queue: int
    """Jobs that could start on free GPUs, and itself."""
    deadline: datetime | None = None
    in_time: float | None = None
    """Probability that it is done by its deadline; None: it has none, or one that has passed or lies too far ahead."""
    start: ForeseenStart = NOTHING_FORESEEN


class OpenForecast(NamedTuple):
    """A kept forecast whose outcome is not known yet."""

    pk: int
    job: UUID
    event: str
    occasion: str
    made_at: datetime


class Ending(NamedTuple):
    """Start and end of a job, as far as they are known."""

    state: str
    started_at: datetime | None
    finished_at: datetime | None


def record_forecasts(asked: ForecastInput, found: Intervals | None, now: datetime) -> None:
    """Replace the forecasts of all jobs, and keep those that are due; None: there are no jobs.

    All is read before the transaction, which on SQLite keeps everybody else from writing.
    """
    foreseen = read_foreseen_starts()
    made = made_forecasts(asked, found, Correction.of(read_played(now))) if found else []
    made = [with_delay(one, foreseen.get(one.job, NOTHING_FORESEEN), now) for one in made]
    due = list(forecasts_due(made, read_open(), now))
    kept = [row for one, occasion in due for row in _kept_rows(one, occasion, now)]
    deadlines = list(_deadline_rows((one for one, _ in due), now))
    with transaction.atomic():
        _write_present(made, now)
        insert_many(KeptForecast, kept)
        insert_many(DeadlineForecast, deadlines)


def close_outcomes() -> None:
    """Record the outcomes of kept forecasts, and delete those that will never have one, in batches."""
    happened, never = came_true(read_open(), _endings())
    rewrite(KeptForecast, ("happened_at",), {pk: (at,) for pk, at in happened.items()})
    for first in range(0, len(never), ROWS_PER_BATCH):
        KeptForecast.objects.filter(pk__in=never[first : first + ROWS_PER_BATCH]).delete()


# -- decide: pure --------------------------------------------------------------------------------------------------


def made_forecasts(asked: ForecastInput, found: Intervals, correction: Correction) -> list[MadeForecast]:
    """The forecast of each job, corrected by the errors of earlier forecasts."""
    places = places_among_startable(asked, found)
    return [made_forecast(asked, found, correction, at, place=places[at]) for at in range(len(asked.jobs))]


def places_among_startable(asked: ForecastInput, found: Intervals) -> Sequence[int]:
    """Place of each job (m,) among those that could start on free GPUs, of another one behind those before it."""
    able = np.array([job.id in asked.startable for job in asked.jobs], dtype=bool)
    order = np.argsort(found.place, kind="stable")
    places = np.empty(len(order), dtype=np.int64)
    places[order] = np.cumsum(able[order]) + ~able[order]
    return [int(place) for place in places]


def made_forecast(
    asked: ForecastInput, found: Intervals, correction: Correction, at: int, *, place: int
) -> MadeForecast:
    """The forecast of the job in this row, corrected by the errors of earlier forecasts."""
    job, runs, kind = asked.jobs[at], bool(asked.runs[at]), int(found.gpu_type[at])
    known = job.steps_in_all is not None
    played = ({} if runs else {Event.START: found.start_s[at]}) | {Event.FINISH: found.finish_s[at]}
    return MadeForecast(
        job=job.id,
        team_id=job.team_id,
        known_length=known,
        runs=runs,
        started_before=job.attempt_count > 0,
        played_s=played,
        shown_s=shown_quantiles(played, correction, known_length=known),
        gpu_type=asked.types[kind] if kind >= 0 else "",
        type_part=float(found.type_part[at]),
        place=0 if runs else max(place, 1),
        queue=len(asked.startable | {job.id}) if not runs else len(asked.startable),
        deadline=job.deadline,
        in_time=None if np.isnan(found.in_time[at]) else float(found.in_time[at]),
    )


def with_delay(one: MadeForecast, foreseen: ForeseenStart, now: datetime) -> MadeForecast:
    """The forecast, wider if the job starts later than foreseen: it may be as late again, and end so much later."""
    if one.runs or Event.START not in one.shown_s:
        return one
    foreseen, shown = foreseen.at(now), dict(one.shown_s)
    latest_s = float(shown[Event.START][-1])
    if foreseen.late_since is not None:
        more_s = max((now - foreseen.late_since).total_seconds() - latest_s, 0.0) if np.isfinite(latest_s) else 0.0
        shown = {event: quantiles + np.array([0.0, 0.0, more_s]) for event, quantiles in shown.items()}
        latest_s += more_s
    latest = now + timedelta(seconds=latest_s) if np.isfinite(latest_s) else None
    by = min((at for at in (foreseen.by, latest) if at is not None), default=None)
    return replace(one, shown_s=shown, start=foreseen._replace(by=by))


def shown_quantiles(
    played_s: Mapping[Event, Floats], correction: Correction, *, known_length: bool
) -> dict[Event, Floats]:
    """The quantiles (3,) of each event, corrected; a start is corrected to no later than the end."""
    shown = {
        event: correction.corrected(ForecastClass.of(event, s, known_length=known_length), s)
        for event, s in played_s.items()
    }
    return {event: np.minimum(s, shown[Event.FINISH]) for event, s in shown.items()}


def forecasts_due(
    made: Iterable[MadeForecast], kept: Iterable[OpenForecast], now: datetime
) -> Iterator[tuple[MadeForecast, Occasion]]:
    """The forecasts that are to be kept, each with its occasion."""
    made = list(made)
    each_hour = set(nsmallest(MOST_HOURLY, (one.job for one in made), key=lambda job: crc32(job.bytes)))
    occasions: dict[UUID, set[str]] = {}
    newest: dict[UUID, datetime] = {}
    for one in kept:
        occasions.setdefault(one.job, set()).add(one.occasion)
        newest[one.job] = max(newest.get(one.job, one.made_at), one.made_at)
    for forecast in made:
        before = occasions.get(forecast.job, set())
        if forecast.runs and Occasion.START not in before:
            yield forecast, Occasion.START
        elif not before and not forecast.started_before:
            yield forecast, Occasion.SUBMISSION
        elif forecast.job in each_hour and (forecast.job not in newest or now - newest[forecast.job] >= EVERY):
            yield forecast, Occasion.HOURLY


def _kept_rows(one: MadeForecast, occasion: Occasion, now: datetime) -> Iterator[dict[str, Any]]:
    for event, played_s in one.played_s.items():
        if event == Event.START and one.started_before:
            continue
        yield {
            "job": one.job,
            "team_id": one.team_id,
            "event": event,
            "occasion": occasion,
            "made_at": now,
            "known_length": one.known_length,
            **_columns("played", played_s),
            **_columns("shown", one.shown_s[event]),
        }


def _deadline_rows(due: Iterable[MadeForecast], now: datetime) -> Iterator[dict[str, Any]]:
    """Rows of forecasts with the probability of a deadline that has not passed."""
    for one in due:
        if one.in_time is not None and one.deadline is not None and one.deadline > now:
            columns = {name: getattr(one, name) for name in ("job", "team_id", "deadline", "in_time")}
            yield columns | {"made_at": now}


def _columns(of: str, quantiles_s: Floats) -> dict[str, float | None]:
    seconds = [float(value) if np.isfinite(value) else None for value in quantiles_s]
    return {f"{of}_{name}_s": value for name, value in zip(QUANTILE_NAMES, seconds, strict=True)}


def came_true(kept: Iterable[OpenForecast], jobs: Mapping[UUID, Ending]) -> tuple[dict[int, datetime], list[int]]:
    """Times at which forecast events happened, by the forecast's key, and the keys of events that never will.

    How long a job would have taken that failed or was cancelled is not known.
    """
    happened, never = dict[int, datetime](), list[int]()
    for one in kept:
        ending = jobs.get(one.job)
        at = _at(one.event, ending) if ending else None
        if at is not None:
            happened[one.pk] = at
        elif ending is None or ending.finished_at is not None:
            never.append(one.pk)
    return happened, never


def _at(event: str, ending: Ending) -> datetime | None:
    if event == Event.START:
        return ending.started_at
    return ending.finished_at if ending.state == Job.State.SUCCEEDED else None


# -- read ----------------------------------------------------------------------------------------------------------


def read_foreseen_starts() -> dict[UUID, ForeseenStart]:
    """What was foreseen of the starts of jobs that waited when the last forecast was made."""
    rows = JobForecast.objects.exclude(place=0).values_list("job", "start_by", "late_since")
    return {job: ForeseenStart(by, since) for job, by, since in rows}


def read_open() -> list[OpenForecast]:
    """Kept forecasts whose outcome is not known."""
    rows = KeptForecast.objects.filter(happened_at=None).order_by("pk")
    return [OpenForecast(*row) for row in rows.values_list(*OpenForecast._fields)]


def read_shown() -> list[tuple[ForecastClass, Outcome]]:
    """Outcomes of the newest completed forecasts, as they were shown; the newest last."""
    known = KeptForecast.objects.filter(happened_at__isnull=False, shown_high_s__isnull=False)
    newest = known.order_by("-happened_at", "-pk").values_list(*_outcome_columns("shown"))
    rows = [tuple(row) for row in reversed(newest[:MOST_OUTCOMES])]
    return [_outcome(row, now=happened_at) for row in rows if (happened_at := row[3])]


def read_played(now: datetime) -> list[tuple[ForecastClass, Outcome]]:
    """Outcomes so far of the newest forecasts, as they were simulated; the newest last."""
    newest = KeptForecast.objects.filter(played_high_s__isnull=False).order_by("-pk")
    rows = newest.values_list(*_outcome_columns("played"))[:MOST_OUTCOMES]
    return [_outcome(row, now=now) for row in reversed(rows)]


def _outcome_columns(quantiles: Literal["played", "shown"]) -> list[str]:
    return ["event", "known_length", "made_at", "happened_at", *(f"{quantiles}_{name}_s" for name in QUANTILE_NAMES)]


def _outcome(row: Sequence[Any], *, now: datetime) -> tuple[ForecastClass, Outcome]:
    """The outcome in a row of these columns, until now where it has not happened."""
    event, known_length, made_at, happened_at, low_s, median_s, high_s = row
    seconds, happened = _seconds(made_at, happened_at or now), happened_at is not None
    of_class = ForecastClass.of(event, (low_s, median_s, high_s), known_length=known_length)
    return of_class, Outcome(low_s, median_s, high_s, seconds, happened)


def read_outcomes_of_teams(teams: QuerySet[Team] | None) -> list[tuple[str, str, Outcome]]:
    """Team, event and outcome of the newest forecasts of these teams' jobs, as they were shown; None: of all teams."""
    known = KeptForecast.objects.filter(happened_at__isnull=False, shown_high_s__isnull=False)
    of_teams = known if teams is None else known.filter(team__in=teams)
    columns = ("team__name", "event", "made_at", "happened_at", *(f"shown_{name}_s" for name in QUANTILE_NAMES))
    newest = of_teams.order_by("-happened_at", "-pk").values_list(*columns)[:MOST_OUTCOMES]
    return [
        (team, event, Outcome(low_s, median_s, high_s, _seconds(made, came)))
        for team, event, made, came, low_s, median_s, high_s in newest
    ]


def _seconds(made_at: datetime, happened_at: datetime) -> float:
    return max((happened_at - made_at).total_seconds(), 0.0)


def _endings() -> dict[UUID, Ending]:
    """Start and end of the jobs of all forecasts whose outcome is not known."""
    of_open = KeptForecast.objects.filter(happened_at=None).values("job")
    rows = Job.objects.filter(pk__in=of_open).values_list("pk", *Ending._fields)
    return {pk: Ending(*row) for pk, *row in rows}


# -- write ---------------------------------------------------------------------------------------------------------


def _write_present(made: Sequence[MadeForecast], now: datetime) -> None:
    JobForecast.objects.all().delete()
    insert_many(JobForecast, [present_row(one, now) for one in made])


def present_row(one: MadeForecast, now: datetime) -> dict[str, Any]:
    """Columns of the present forecast of one job."""
    moments = {
        f"{event}_{name}": now + timedelta(seconds=float(seconds)) if np.isfinite(seconds) else None
        for event, quantiles in one.shown_s.items()
        for name, seconds in zip(QUANTILE_NAMES, quantiles, strict=True)
    }
    about = {"gpu_type": one.gpu_type, "type_part": one.type_part, "place": one.place, "queue": one.queue}
    deadline = {"deadline": one.deadline, "in_time": one.in_time}
    start = {"start_by": one.start.by, "late_since": one.start.late_since}
    return {"job": one.job, "made_at": now, **moments, **about, **deadline, **start}
