"""Comparison of jobs: differences of their specs, times and cost, and their rates and losses on one chart each."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import plotly.graph_objects as go
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from jobs_app.measurement.progress_curves import PointOfTime, read_curves
from jobs_app.models import Attempt, Job
from jobs_app.submission.conversion import spec_of
from web.pages.base import SignedInRequest
from web.pages.charts import Figure, line_of

MOST_COMPARED = 8
MOST_OFFERED = 10
NOT_COMPARED = {"name"}


@dataclass(frozen=True)
class ComparedJob:
    """A job with what it took so far."""

    job: Job
    attempts: Sequence[Attempt]
    now: datetime
    points: Sequence[PointOfTime]

    @property
    def waited_s(self) -> float:
        return self.job.waited_s(self.now)

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
    """Jobs side by side: `?ids=A,B`; a POST is the form of the list, and leads there."""
    if request.method == "POST":
        return redirect(f"{reverse('compare-jobs')}?ids={','.join(request.POST.getlist('job')[:MOST_COMPARED])}")
    ids = asked_ids(request.GET)
    visible = Job.objects.visible_to(request.user).select_related("team", "owner", "code")
    jobs_asked = visible.prefetch_related("attempts__gpu_type", "needs").filter(pk__in=ids)
    found = {str(job.pk): job for job in jobs_asked}
    if len(found) < len(ids):
        raise Http404
    jobs = [found[pk] for pk in ids]
    return render(request, "pages/compare.html", _context(request, jobs))


def asked_ids(query: QueryDict) -> list[str]:
    """Ids of the address, each once, in their order; `add` is one more."""
    texts = [*",".join(query.getlist("ids")).split(","), *query.getlist("add")]
    try:
        ids = dict.fromkeys(str(UUID(text.strip())) for text in texts if text.strip())
    except ValueError as error:
        raise Http404 from error
    return list(ids)[:MOST_COMPARED]


def _context(request: SignedInRequest, jobs: Sequence[Job]) -> dict[str, Any]:
    now, curves = timezone.now(), read_curves([job.pk for job in jobs])
    compared = [ComparedJob(job, list(job.attempts.all()), now, curves.get(job.pk, [])) for job in jobs]
    specs = [spec_of(job) for job in jobs]
    return {
        "compared": compared,
        "ids": ",".join(str(job.pk) for job in jobs),
        "differences": differences(specs),
        "figures": figures_of(compared),
        "others": _others(request, jobs) if jobs and len(jobs) < MOST_COMPARED else [],
        "most": MOST_COMPARED,
    }


def _others(request: SignedInRequest, jobs: Sequence[Job]) -> list[Job]:
    """The newest other jobs of the first one's workload."""
    alike = Job.objects.visible_to(request.user).filter(workload=jobs[0].workload)
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
    """Rate and loss by step, a line for each job that reported them more than once."""
    values = {
        "steps/s": [[(point.step, point.rate) for point in one.points if point.rate is not None] for one in compared],
        "loss": [[(point.step, point.loss) for point in one.points if point.loss is not None] for one in compared],
    }
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
