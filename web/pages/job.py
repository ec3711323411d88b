"""Job page: timeline and the tabs overview, why, logs, files, checkpoints, gpus, cost, attempts,
events and spec."""

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from itertools import groupby
from pprint import pformat
from typing import Any
from uuid import UUID

from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.views.decorators.http import require_safe

from accounting_app.gpu_watch.history import course_of_attempt, energy_j, latest_watched, summaries
from allocation.policies import price_meaning
from insight_app.errors import TooManySolves
from insight_app.explain.array_progress import array_progress
from insight_app.explain.attempt_explanations import amount_of, cancel_cost, shortage_of
from insight_app.explain.decisions import explain_job
from insight_app.explain.gpu_advice import read_gpu_advice
from insight_app.explain.outlooks import checkpoint_outlook, placement_odds
from insight_app.explain.rate_comparison import compare_rates, explain_placement
from insight_app.explain.receipt import read_receipt
from insight_app.explain.remaining_work import remaining_work
from insight_app.explain.restart_cost import restart_cost
from insight_app.explain.solve_slots import solve_slots
from insight_app.explain.start_stages import CAUSES as START_CAUSES
from insight_app.explain.start_stages import start_bars
from insight_app.explain.timeline import (
    CAUSES,
    HOLDS,
    StateSpan,
    axis_ticks,
    bar_segments,
    expected_spans,
    holds_of,
    restarts_of,
    seconds_by_gpus,
    seconds_by_state,
    state_spans,
    waited_s,
)
from insight_app.explain.what_if import WouldStart, what_would_start
from insight_app.start_forecasts.showing import ShownForecast, read_forecast, why_none
from jobs_app.job_archive import archived_job
from jobs_app.lifecycle.comments import MOST_CHARACTERS, comments_on
from jobs_app.measurement.energy import EnergySource, energy_of_ended
from jobs_app.measurement.progress_curves import last_metrics, read_curve
from jobs_app.models import Attempt, Job, JobEvent, SweepTrial
from jobs_app.submission.conversion import spec_of, write_yaml
from jobs_app.submission.larger_requests import LargerRequest, requests_against
from motley_client.web_ports import web_port_of
from scheduler_app.models import Round
from scheduler_app.sweeps.trial_spec import SWEEP_TAG
from web.pages.base import SignedInRequest, emulated_nodes, unknown_value
from web.pages.gpu_charts import gpu_figures
from web.pages.gpu_holders import read_gpu_holders
from web.pages.job_files import checkpoints_tab, files_tab
from web.pages.job_log import last_lines_of, log_tab
from web.pages.job_rows import read_gpu_styles
from web.pages.progress_charts import progress_figures
from web.pages.time_zones import zone_at

MOST_ROWS = 20
"""Of the table that says what the charts of progress do."""

PYTHON = """\
import os

from motley_client import Client

spec = {spec}
with Client(os.environ["MOTLEY_URL"], os.environ["MOTLEY_TOKEN"]) as motley:
    job = motley.wait(motley.submit(spec)["id"])
    print(job["state"])
"""

Context = dict[str, Any]
Tab = Callable[[SignedInRequest, Job, Sequence[Attempt]], Context]


@login_required
@require_safe
def job(request: SignedInRequest, pk: UUID) -> HttpResponse:
    seen = _seen(request).filter(pk=pk).first()
    if seen is None:
        return _archived(request, pk)
    tab = request.GET.get("tab", "overview")
    if tab not in TABS:
        raise unknown_value("tab", tab, TABS)
    attempts, now = list(seen.attempts.all()), timezone.now()
    spans, styles = spans_of(seen, attempts, now), read_gpu_styles()
    forecast, emulated = read_forecast(seen), emulated_nodes()
    coming = _coming(forecast, now) if forecast else []
    context = {
        "job": seen,
        "attempts": attempts,
        "latest": attempts[-1] if attempts else None,
        "segments": bar_segments([*spans, *coming], attempts, styles),
        "ticks": axis_ticks([*spans, *coming], timezone.get_current_timezone(), zone_at(now)),
        "coming": coming,
        "on_types": [(name, seconds, styles[name]) for name, seconds in seconds_by_gpus(spans, attempts).items()],
        "restarts": restarts_of(seen, spans, attempts),
        "delays": [(state, seconds, CAUSES[state]) for state, seconds in seconds_by_state(spans).items()],
        "forecast": forecast,
        "trial": _trial(seen),
        "web_port": web_port_of(seen.tags, seen.env),
        "continued": Job.objects.visible_to(request.user).filter(pk=seen.continues).first() if seen.continues else None,
        "comment": None if tab == "events" else comments_on(seen).last(),
        "deadline_passed": not seen.is_final and seen.deadline is not None and seen.deadline <= now,
        "emulated": any(node in emulated for attempt in attempts for node in attempt.nodes),
        "tab": tab,
        "tabs": list(TABS),
    }
    return render(request, f"pages/job/{tab}.html", context | TABS[tab](request, seen, attempts))


def _trial(job: Job) -> SweepTrial | None:
    """The trial of a sweep that it is; only jobs with its tag are looked up."""
    trials = SweepTrial.objects.filter(job_id=job.pk).select_related("sweep")
    return trials.first() if SWEEP_TAG in job.tags else None


def spans_of(job: Job, attempts: Sequence[Attempt], now: datetime) -> list[StateSpan]:
    """The job's time in each state, by its attempts, its begin time and when it was held."""
    events = job.events.filter(kind__in=HOLDS).order_by("id").values_list("kind", "at")
    return state_spans(job, attempts, now, holds_of(job, attempts, events))


def _coming(forecast: ShownForecast, now: datetime) -> list[StateSpan]:
    """Expected spans by the medians of its forecast; none if they are past."""
    return expected_spans(now, forecast.start.median if forecast.start else None, forecast.finish.median)


def _archived(request: SignedInRequest, pk: UUID) -> HttpResponse:
    """Page of an archived job, without tabs."""
    if (found := archived_job(pk, request.user)) is None:
        raise Http404
    whole = found.whole
    moments = ("created_at", "started_at", "finished_at", "files_deleted_at")
    context = {
        "job": whole | {name: parse_datetime(whole[name] or "") for name in moments},
        "attempts": [attempt | {"ran_s": _ran_s(attempt)} for attempt in reversed(whole["attempts"])],
        "events": [
            event | {"at": parse_datetime(event["at"]), "label": JobEvent.Kind(event["kind"]).label}
            for event in found.events
        ],
        "label": Job.State(whole["state"]).label,
        "yaml": write_yaml(whole["spec"]),
        "energy_words": EnergySource(whole["energy"]["source"]).words if whole.get("energy") else "",
    }
    return render(request, "pages/job/archived.html", context)


def _ran_s(attempt: Mapping[str, Any]) -> float | None:
    started, ended = (parse_datetime(attempt[name] or "") for name in ("started_at", "ended_at"))
    return (ended - started).total_seconds() if started and ended else None


def _seen(request: SignedInRequest) -> Any:
    jobs = Job.objects.visible_to(request.user).select_related("team", "owner", "code", "recurring", "recipe")
    return jobs.prefetch_related("attempts__gpu_type", "needs__parent")


def _overview(request: SignedInRequest, job: Job, attempts: Sequence[Attempt]) -> Context:
    now, last = timezone.now(), last_lines_of(job, attempts)
    gpu_s = [(attempt, attempt.ran_s(now) * attempt.gpu_count) for attempt in attempts]
    return {
        "command": job.command if isinstance(job.command, str) else shlex.join(job.command),
        "gpu_s": sum(seconds for _, seconds in gpu_s),
        "cost": sum(seconds / 3600 * float(attempt.gpu_type.price_per_hour) for attempt, seconds in gpu_s),
        "cancel_cost": None if job.is_final else cancel_cost(job, attempts, now),
        "remaining": remaining_work(job, attempts, now),
        "checkpoints": checkpoint_outlook(job, attempts, now),
        "placement": placement_odds(job, attempts, now),
        "restart": restart_cost(job, attempts),
        "array": array_progress(job.array_id, Job.objects.all(), now) if job.array_id else None,
        "energy_j": energy_j(attempts),
        "energy_of_ended": energy_of_ended(attempts),
        "waited_s": waited_s(job, spans_of(job, attempts, now), now),
        "waited_for": job.needed_by.filter(child__in=Job.objects.visible_to(request.user)).count(),
        "cpu_memory": amount_of(attempts[-1]) if attempts else "",
        "ran_s": sum(attempt.ran_s(now) for attempt in attempts),
        "files_kept_until": job.finished_at + settings.MOTLEY_KEEP_FILES if job.finished_at else None,
        **_progress(job, attempts),
        **last,
        "larger": _larger(job, attempts, [line.text for line in last.get("last_lines", ())]),
    }


def _larger(job: Job, attempts: Sequence[Attempt], last_lines: Sequence[str]) -> list[LargerRequest]:
    """Larger requests with which the job may succeed, by the resource that it ran out of."""
    return requests_against(shortage_of(job, attempts[-1], last_lines), job) if attempts else []


def _progress(job: Job, attempts: Sequence[Attempt]) -> Context:
    """Charts of its progress, and the same as a table of a few points."""
    points = read_curve(job.pk)
    restarts = [attempt.started_at for attempt in attempts if attempt.number > 1 and attempt.started_at]
    every = max(1, len(points) // MOST_ROWS)
    last = [(name, *metric) for name, metric in last_metrics(points).items()]
    return {"figures": progress_figures(points, restarts), "points": points[::every], "last_metrics": last}


def _why(request: SignedInRequest, job: Job, attempts: Sequence[Attempt]) -> Context:
    explanation, record = explain_job(job, timezone.now()), Round.objects.latest_committed()
    live = [attempt for attempt in attempts if attempt.state != Attempt.State.ENDED]
    current = live[-1].gpu_type.name if live else None
    rows = compare_rates(explanation["rates_used"], current=current, prices=record.prices if record else {})
    placed = explanation["placement"]
    odds = f"{placed.detail.capitalize()}." if placed else ""
    about = ("measurement", "cpu_memory", "others_wait")
    sentences = [explain_placement(rows), *(explanation[name] for name in about), odds]
    return {
        "outlook": explanation["outlook"],
        "held_types": read_gpu_holders(job, {rate["gpu_type"] for rate in explanation["rates_used"]}, request.user),
        "waking": explanation["waking"],
        "why_no_forecast": "" if explanation["outlook"] or job.state != Job.State.QUEUED else why_none(job),
        "rates": rows,
        "has_shares": any(row.share is not None for row in rows),
        "no_rate_known": bool(rows) and all(row.rate is None for row in rows),
        "explain_placement": " ".join(filter(None, sentences)),
        "round": record,
        "price_meaning": price_meaning(record.policy if record else ""),
    }


@login_required
@require_safe
def would_start(request: SignedInRequest, pk: UUID) -> HttpResponse:
    """What-if page of a job; separate because it plans several rounds."""
    seen = get_object_or_404(_seen(request), pk=pk)
    try:
        with solve_slots.slot_for(request.user):
            found, status = what_would_start(seen, timezone.now()), 200
    except TooManySolves as error:
        found, status = WouldStart(str(error)), 503
    return render(request, "pages/would_start.html", {"job": seen, "found": found}, status=status)


def _gpus(request: SignedInRequest, job: Job, attempts: Sequence[Attempt]) -> Context:
    attempt, now = latest_watched(attempts), timezone.now()
    points = course_of_attempt(attempt, now) if attempt else []
    return {
        "watched": attempt,
        "figures": gpu_figures(points),
        "points": points,
        "gpus": summaries(attempt) if attempt else [],
        "energy_j": energy_j(attempts),
    }


def _cost(request: SignedInRequest, job: Job, attempts: Sequence[Attempt]) -> Context:
    return {
        "receipt": read_receipt(job, attempts, timezone.now()),
        "advice": read_gpu_advice(job, attempts),
        "intensity": settings.MOTLEY_CO2_G_PER_KWH,
    }


def _attempts(request: SignedInRequest, job: Job, attempts: Sequence[Attempt]) -> Context:
    now = timezone.now()
    return {
        "newest": [(attempt, attempt.ran_s(now), start_bars(attempt, now)) for attempt in reversed(attempts)],
        "stages": START_CAUSES.items(),
    }


def _events(request: SignedInRequest, job: Job, attempts: Sequence[Attempt]) -> Context:
    events = job.events.select_related("actor").order_by("id")
    days = [(day, list(of_day)) for day, of_day in groupby(events, key=lambda event: timezone.localdate(event.at))]
    return {"days": days, "longest_comment": MOST_CHARACTERS}


def _spec(request: SignedInRequest, job: Job, attempts: Sequence[Attempt]) -> Context:
    spec = spec_of(job)
    return {
        "yaml": write_yaml(spec),
        "cli": f"motley submit - <<'END'\n{write_yaml(spec)}END",
        "curl": "curl -sS -X POST -H 'Content-Type: application/json' "
        f'-H "Authorization: Bearer $MOTLEY_TOKEN" \\\n  -d {shlex.quote(json.dumps(spec))} \\\n'
        f"  {settings.PUBLIC_URL}/api/v1/jobs",
        "python": PYTHON.format(spec=pformat(spec, width=100, sort_dicts=False)),
    }


TABS: dict[str, Tab] = {
    "overview": _overview,
    "why": _why,
    "logs": log_tab,
    "files": files_tab,
    "checkpoints": checkpoints_tab,
    "gpus": _gpus,
    "cost": _cost,
    "attempts": _attempts,
    "events": _events,
    "spec": _spec,
}
