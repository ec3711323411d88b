"""Comparison of jobs: differences of their specs, times and cost, and their rates and losses on one chart each."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import plotly.graph_objects as go
from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import User
from django.http import Http404, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from insight_app.explain.timeline import HOLDS, Hold, holds_of, state_spans, waited_s
from jobs_app.measurement.progress_curves import PointOfTime, read_curves
from jobs_app.models import Attempt, Job, JobEvent
from jobs_app.submission.conversion import spec_of
from jobs_app.submission.needs_by_name import job_named
from web.pages.base import SignedInRequest
from web.pages.charts import Figure, line_of
from web.pages.progress_charts import metric_names

MOST_COMPARED = 8
MOST_TICKED = 100
"""Of the list of jobs; those beyond the most that are compared are named."""
MOST_OFFERED, NEWEST_OFFERED = 10, 5_000
NOT_COMPARED = {"name"}


@dataclass(frozen=True)
class ComparedJob:
    """A job with what it took so far."""

    job: Job
    attempts: Sequence[Attempt]
    now: datetime
    points: Sequence[PointOfTime]
    holds: Sequence[Hold] = ()

    @property
    def waited_s(self) -> float:
        return waited_s(self.job, state_spans(self.job, self.attempts, self.now, self.holds), self.now)

    @property
    def ran_s(self) -> float:
        return sum(attempt.ran_s(self.now) for attempt in self.attempts)

    @property
    def gpus(self) -> str:
        """What it ran on: 4 A100, then 2 T4."""
        named = [f"{attempt.gpu_count} {attempt.gpu_type.name.upper()}" for attempt in self.attempts]
        return ", then ".join(text for n, text in enumerate(named) if n == 0 or text != named[n - 1])

    @property
    def gpu_s(self) -> float:
        return sum(attempt.ran_s(self.now) * attempt.gpu_count for attempt in self.attempts)

    @property
    def cost(self) -> float:
        """By the prices of its GPU types."""
        hours = ((one.ran_s(self.now) * one.gpu_count / 3600, one.gpu_type.price_per_hour) for one in self.attempts)
        return sum(gpu_hours * float(price) for gpu_hours, price in hours)

    @property
    def loss(self) -> float | None:
        """The last one that it reported."""
        return next((point.loss for point in reversed(self.points) if point.loss is not None), None)

    @property
    def rate(self) -> float | None:
        """Steps per second of running time."""
        return self.job.step / self.ran_s if self.job.step and self.ran_s else None


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def compare(request: SignedInRequest) -> HttpResponse:
    """Jobs side by side: `?ids=A,B`, with one more by `add`; a POST is the form of the list, and leads there."""
    if request.method == "POST":
        return redirect(f"{reverse('compare-jobs')}?ids={','.join(request.POST.getlist('job')[:MOST_TICKED])}")
    ids, fault, typed = asked_ids(request.GET), "", request.GET.get("add", "").strip()
    try:
        ids = list(dict.fromkeys([*ids, *([_added(typed, request.user)] if typed else [])]))
    except LookupError as error:
        fault = str(error)
    jobs = _jobs_of(request, ids[:MOST_COMPARED])
    told = {"fault": fault, "typed": typed if fault else "", "left_out": _left_out(request, ids[MOST_COMPARED:])}
    return render(request, "pages/compare.html", _context(request, jobs) | told)


def asked_ids(query: QueryDict) -> list[str]:
    """Ids of the address, each once, in their order."""
    texts = ",".join(query.getlist("ids")).split(",")
    try:
        return list(dict.fromkeys(str(UUID(text.strip())) for text in texts if text.strip()))
    except ValueError as error:
        raise Http404 from error


def _added(typed: str, user: User) -> str:
    """The id of one more job, by its id or its name; else `LookupError`."""
    try:
        pk = UUID(typed)
    except ValueError:
        return str(job_named(typed, user).pk)
    if Job.objects.visible_to(user).filter(pk=pk).exists():
        return str(pk)
    raise LookupError(f"No job that you may see has the id {typed}: check it, or write the job's name.")


def _jobs_of(request: SignedInRequest, ids: Sequence[str]) -> list[Job]:
    visible = Job.objects.visible_to(request.user).select_related("team", "owner", "code")
    asked = visible.prefetch_related("attempts__gpu_type", "needs").filter(pk__in=ids)
    found = {str(job.pk): job for job in asked}
    if len(found) < len(ids):
        raise Http404
    return [found[pk] for pk in ids]


def _left_out(request: SignedInRequest, ids: Sequence[str]) -> list[Job]:
    """Jobs beyond the most that are compared, in their order."""
    found = {str(job.pk): job for job in Job.objects.visible_to(request.user).filter(pk__in=ids[:MOST_TICKED])}
    return [found[pk] for pk in ids if pk in found]


def _context(request: SignedInRequest, jobs: Sequence[Job]) -> dict[str, Any]:
    now, curves = timezone.now(), read_curves([job.pk for job in jobs])
    holds = _holds(jobs)
    compared = [ComparedJob(job, list(job.attempts.all()), now, curves.get(job.pk, []), holds[job.pk]) for job in jobs]
    specs = [spec_of(job) for job in jobs]
    return {
        "compared": compared,
        "ids": ",".join(str(job.pk) for job in jobs),
        "differences": differences(specs),
        "figures": figures_of(compared),
        "others": _others(request, jobs) if jobs and len(jobs) < MOST_COMPARED else [],
        "most": MOST_COMPARED,
    }


def _holds(jobs: Sequence[Job]) -> dict[UUID, list[Hold]]:
    """When each job was held."""
    events: dict[UUID, list[tuple[str, datetime]]] = defaultdict(list)
    found = JobEvent.objects.filter(job__in=jobs, kind__in=HOLDS).order_by("id")
    for job, kind, at in found.values_list("job", "kind", "at"):
        events[job].append((kind, at))
    return {job.pk: holds_of(job, list(job.attempts.all()), events[job.pk]) for job in jobs}


def _others(request: SignedInRequest, jobs: Sequence[Job]) -> list[Job]:
    """The newest other jobs of the first one's workload, among the newest jobs alone: no index has the workload."""
    newest = Job.objects.visible_to(request.user).order_by("-pk").values("pk")[:NEWEST_OFFERED]
    alike = Job.objects.filter(pk__in=newest, workload=jobs[0].workload)
    return list(alike.exclude(pk__in=[job.pk for job in jobs]).select_related("owner").order_by("-pk")[:MOST_OFFERED])


def differences(specs: Sequence[Mapping[str, Any]]) -> list[tuple[str, list[str]]]:
    """Fields in which the specs differ, each with its value in every spec as text; empty where it has its default."""
    if len(specs) < 2:
        return []
    flat = [dict(_flat(spec)) for spec in specs]
    names = dict.fromkeys(name for one in flat for name in one)
    rows = [(name, [one.get(name, "") for one in flat]) for name in names if name not in NOT_COMPARED]
    return [(name, values) for name, values in rows if len(set(values)) > 1]


def _flat(spec: Mapping[str, Any], above: str = "") -> list[tuple[str, str]]:
    """Values by their path: env.LR, checkpoint.grace_seconds."""
    found: list[tuple[str, str]] = []
    for name, value in spec.items():
        path = f"{above}{name}"
        found += _flat(value, f"{path}.") if isinstance(value, Mapping) else [(path, _text(value))]
    return found


def _text(value: Any) -> str:
    return " ".join(map(_text, value)) if isinstance(value, list) else str(value)


def figures_of(compared: Sequence[ComparedJob]) -> dict[str, Figure]:
    """Rate, loss and named metrics by step, a line for each job that reported them more than once."""
    values: dict[str, list[list[tuple[int, float]]]] = {
        "steps/s": [[(point.step, point.rate) for point in one.points if point.rate is not None] for one in compared],
        "loss": [[(point.step, point.loss) for point in one.points if point.loss is not None] for one in compared],
    }
    for name in dict.fromkeys(name for one in compared for name in metric_names(one.points)):
        values.setdefault(name, [[p.metrics[name] for p in one.points if name in p.metrics] for one in compared])
    return {name: _figure(name, compared, lines) for name, lines in values.items() if any(len(n) > 1 for n in lines)}


def _figure(name: str, compared: Sequence[ComparedJob], lines: Sequence[Sequence[tuple[int, float]]]) -> Figure:
    layout = {
        "template": "none",
        "xaxis": {"title": {"text": "Step"}, "automargin": True, "fixedrange": True},
        "yaxis": {
            "title": {"text": name.capitalize()},
            "automargin": True,
            "fixedrange": True,
            "rangemode": "tozero" if name == "steps/s" else "normal",
        },
        "hovermode": "x unified",
        "showlegend": True,
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom"},
        "margin": {"l": 56, "r": 16, "t": 16, "b": 40},
        "height": 320,
    }
    traces = [
        go.Scatter(
            x=[step for step, _ in line],
            y=[value for _, value in line],
            name=f"{place + 1}: {one.job}".replace("<", "&lt;"),
            mode="lines",
            line=line_of(place),
        )
        for place, (one, line) in enumerate(zip(compared, lines, strict=True))
    ]
    figure: Figure = go.Figure(traces, layout).to_plotly_json()
    figure["layout"].pop("template")
    return figure
