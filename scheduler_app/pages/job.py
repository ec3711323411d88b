"""Job page: timeline and the tabs overview, why, logs, gpus, attempts, events and spec."""

import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from itertools import groupby
from typing import Any
from uuid import UUID

from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpResponse, StreamingHttpResponse
from django.shortcuts import get_object_or_404, render
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.utils.text import slugify
from django.views.decorators.http import require_safe

from engines.protocol import EngineError, Stream
from jobs_app.job_archive import archived_job
from jobs_app.measurement.energy import EnergySource, energy_of_ended
from jobs_app.models import Attempt, Job
from jobs_app.submission.conversion import spec_of, write_yaml
from scheduler_app.errors import TooManySolves
from scheduler_app.explain.array_progress import array_progress
from scheduler_app.explain.checkpoint_outlook import checkpoint_outlook
from scheduler_app.explain.cpu_memory import amount_of
from scheduler_app.explain.decisions import explain_job
from scheduler_app.explain.placement_odds import placement_odds
from scheduler_app.explain.preemption_cost import preemption_cost
from scheduler_app.explain.rate_comparison import compare_rates, explain_placement
from scheduler_app.explain.remaining_work import remaining_work
from scheduler_app.explain.solve_slots import solve_slots
from scheduler_app.explain.timeline import CAUSES, bar_segments, seconds_by_state, state_spans
from scheduler_app.explain.what_if import WouldStart, what_would_start
from scheduler_app.gpu_watch.history import course_of_attempt, energy_j, latest_watched, summaries
from scheduler_app.job_forecasts.showing import read_forecast, why_none
from scheduler_app.logs.reading import log_tail, read_log, readable
from scheduler_app.models import Round
from scheduler_app.pages.base import SignedInRequest, emulated_nodes
from scheduler_app.pages.gpu_charts import gpu_figures

TAIL_BYTES = 64 * 1024
RAW_CHUNK_BYTES = 1024 * 1024
LAST_WORDS_BYTES = 4096
LAST_LINES = 8

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
        raise Http404
    attempts, now = list(seen.attempts.all()), timezone.now()
    spans = state_spans(seen, attempts, now)
    emulated = emulated_nodes()
    context = {
        "job": seen,
        "attempts": attempts,
        "latest": attempts[-1] if attempts else None,
        "segments": bar_segments(spans),
        "delays": [(state, seconds, CAUSES[state]) for state, seconds in seconds_by_state(spans).items()],
        "forecast": read_forecast(seen),
        "emulated": any(node in emulated for attempt in attempts for node in attempt.nodes),
        "tab": tab,
        "tabs": list(TABS),
    }
    return render(request, f"scheduler_app/job/{tab}.html", context | TABS[tab](request, seen, attempts))


def _archived(request: SignedInRequest, pk: UUID) -> HttpResponse:
    """Page of a job of the archive: what is known of it, without tabs."""
    if (found := archived_job(pk, request.user)) is None:
        raise Http404
    whole = found.whole
    moments = ("created_at", "started_at", "finished_at", "files_deleted_at")
    context = {
        "job": whole | {name: parse_datetime(whole[name] or "") for name in moments},
        "attempts": [attempt | {"ran_s": _ran_s(attempt)} for attempt in reversed(whole["attempts"])],
        "events": [event | {"at": parse_datetime(event["at"])} for event in found.events],
        "label": Job.State(whole["state"]).label,
        "yaml": write_yaml(whole["spec"]),
        "energy_words": EnergySource(whole["energy"]["source"]).words if whole.get("energy") else "",
    }
    return render(request, "scheduler_app/job/archived.html", context)


def _ran_s(attempt: Mapping[str, Any]) -> float | None:
    started, ended = (parse_datetime(attempt[name] or "") for name in ("started_at", "ended_at"))
    return (ended - started).total_seconds() if started and ended else None


def _seen(request: SignedInRequest) -> Any:
    jobs = Job.objects.visible_to(request.user).select_related("team", "owner", "code")
    return jobs.prefetch_related("attempts__gpu_type", "needs__parent")


def _overview(request: SignedInRequest, job: Job, attempts: Sequence[Attempt]) -> Context:
    now = timezone.now()
    gpu_s = [(attempt, attempt.ran_s(now) * attempt.gpu_count) for attempt in attempts]
    return {
        "command": job.command if isinstance(job.command, str) else shlex.join(job.command),
        "gpu_s": sum(seconds for _, seconds in gpu_s),
        "cost": sum(seconds / 3600 * float(attempt.gpu_type.price_per_hour) for attempt, seconds in gpu_s),
        "stake": preemption_cost(job, now),
        "remaining": remaining_work(job, attempts, now),
        "checkpoints": checkpoint_outlook(job, attempts, now),
        "placement": placement_odds(job, attempts, now),
        "array": array_progress(job.array_id, Job.objects.all(), now) if job.array_id else None,
        "energy_j": energy_j(attempts),
        "energy_of_ended": energy_of_ended(attempts),
        "waited_s": job.waited_s(now),
        "cpu_memory": amount_of(attempts[-1]) if attempts else "",
        "ran_s": sum(attempt.ran_s(now) for attempt in attempts),
        "files_kept_until": job.finished_at + settings.MOTLEY_KEEP_FILES if job.finished_at else None,
        **_last_words(job, attempts),
    }


def _last_words(job: Job, attempts: Sequence[Attempt]) -> Context:
    """Last lines of stderr of a failed job, or of its setup if it did not come further."""
    launched = [attempt for attempt in attempts if attempt.launched_at]
    if job.state != Job.State.FAILED or not launched or job.files_deleted_at is not None:
        return {}
    for stream in (Stream.STDERR, Stream.SETUP):
        try:
            chunk = log_tail(launched[-1], stream, rank=0, limit=LAST_WORDS_BYTES)
        except EngineError:  # the tab of logs says why
            return {}
        if words := "\n".join(readable(chunk.data).strip().splitlines()[-LAST_LINES:]):
            return {"last_words": words, "last_words_stream": stream.value}
    return {}


def _why(request: SignedInRequest, job: Job, attempts: Sequence[Attempt]) -> Context:
    explanation, record = explain_job(job, timezone.now()), Round.objects.latest_committed()
    live = [attempt for attempt in attempts if attempt.state != Attempt.State.ENDED]
    current = live[-1].gpu_type.name if live else None
    rows = compare_rates(explanation["rates_used"], current=current, prices=record.prices if record else {})
    placed = explanation["placement"]
    odds = f"{placed.detail.capitalize()}." if placed else ""
    sentences = [explain_placement(rows), explanation["measurement"], explanation["cpu_memory"], odds]
    return {
        "outlook": explanation["outlook"],
        "waking": explanation["waking"],
        "why_no_forecast": "" if explanation["outlook"] or job.state != Job.State.QUEUED else why_none(job),
        "rates": rows,
        "explain_placement": " ".join(filter(None, sentences)),
        "round": record,
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
    return render(request, "scheduler_app/would_start.html", {"job": seen, "found": found}, status=status)


def _logs(request: SignedInRequest, job: Job, attempts: Sequence[Attempt]) -> Context:
    launched = [attempt for attempt in attempts if attempt.launched_at]
    attempt, stream, rank = _chosen_log(request, launched)
    fault, chunk = "", None
    if job.files_deleted_at is not None:
        return {"chosen": None}
    try:
        chunk = log_tail(attempt, stream, rank=rank, limit=TAIL_BYTES) if attempt else None
    except EngineError as error:
        fault = str(error)
    return {
        "fault": fault,
        "launched": launched,
        "chosen": attempt,
        "stream": stream.value,
        "streams": [each.value for each in Stream if job.setup or each is not Stream.SETUP],
        "rank": rank,
        "text": readable(chunk.data) if chunk else "",
        "chunk": chunk,
        "tail_kib": TAIL_BYTES // 1024,
        "complete": chunk is not None and chunk.eof and attempt is not None and attempt.state == Attempt.State.ENDED,
    }


def _chosen_log(request: SignedInRequest, launched: Sequence[Attempt]) -> tuple[Attempt | None, Stream, int]:
    """Log selected by the query parameters; default: stdout of the latest attempt's first node."""
    asked = {name: request.GET.get(name, "") for name in ("attempt", "rank")}
    by_number = {str(attempt.number): attempt for attempt in launched}
    attempt = by_number.get(asked["attempt"]) if asked["attempt"] else (launched[-1] if launched else None)
    rank = int(asked["rank"]) if re.fullmatch(r"[0-9]{1,9}", asked["rank"]) else 0
    try:
        stream = Stream(request.GET.get("stream", Stream.STDOUT.value))
    except ValueError as error:
        raise Http404 from error
    if (asked["attempt"] and attempt is None) or (attempt and rank >= len(attempt.nodes)):
        raise Http404
    return attempt, stream, rank


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


def _attempts(request: SignedInRequest, job: Job, attempts: Sequence[Attempt]) -> Context:
    now = timezone.now()
    return {"newest": [(attempt, attempt.ran_s(now)) for attempt in reversed(attempts)]}


def _events(request: SignedInRequest, job: Job, attempts: Sequence[Attempt]) -> Context:
    events = job.events.select_related("actor").order_by("id")
    return {"days": [(day, list(of_day)) for day, of_day in groupby(events, key=lambda event: event.at.date())]}


def _spec(request: SignedInRequest, job: Job, attempts: Sequence[Attempt]) -> Context:
    spec = spec_of(job)
    return {
        "yaml": write_yaml(spec),
        "cli": f"motley submit - <<'END'\n{write_yaml(spec)}END",
        "curl": "curl -sS -X POST -H 'Content-Type: application/json' "
        f'-H "Authorization: Bearer $MOTLEY_TOKEN" \\\n  -d {shlex.quote(json.dumps(spec))} \\\n'
        f"  {settings.PUBLIC_URL}/api/v1/jobs",
    }


TABS: dict[str, Tab] = {
    "overview": _overview,
    "why": _why,
    "logs": _logs,
    "gpus": _gpus,
    "attempts": _attempts,
    "events": _events,
    "spec": _spec,
}


@login_required
@require_safe
def raw_log(request: SignedInRequest, pk: UUID) -> StreamingHttpResponse:
    """Download a log as the job wrote it."""
    seen = get_object_or_404(_seen(request), pk=pk)
    attempt, stream, rank = _chosen_log(request, [a for a in seen.attempts.all() if a.launched_at])
    if attempt is None:
        raise Http404
    name = f"{slugify(seen.name) or seen.pk}-{attempt.number}-{stream.value}-{rank}.log"
    headers = {"Content-Disposition": f'attachment; filename="{name}"', "X-Content-Type-Options": "nosniff"}
    chunks = _chunks(attempt, stream, rank)
    return StreamingHttpResponse(chunks, content_type="text/plain; charset=utf-8", headers=headers)


def _chunks(attempt: Attempt, stream: Stream, rank: int) -> Iterator[bytes]:
    """The log up to its size at the start of the download."""
    offset, size = 0, 1
    while offset < size:
        chunk = read_log(attempt, stream, rank=rank, offset=offset, wait=timedelta(), limit=RAW_CHUNK_BYTES)
        if not chunk.data:
            return
        yield chunk.data
        offset, size = chunk.next_offset, chunk.size if offset == 0 else size
