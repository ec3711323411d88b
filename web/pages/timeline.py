"""Timeline page: past, present and expected runs on the GPUs, as a chart, a table and CSV."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import User
from django.core.paginator import Page, Paginator
from django.http import HttpResponse, StreamingHttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe
from django.views.decorators.http import require_safe

from cluster_app.models import GpuType, Node
from insight_app.timeline.export import COLUMNS, export_rows
from insight_app.timeline.prices import cheap_later, read_prices
from insight_app.timeline.reading import Timeline, Viewer, nodes_of_runs, read_gpus, read_gpus_of_runs, read_timeline
from insight_app.timeline.time_range import DEFAULT, WINDOWS, Frame, shortest_window
from web.pages.base import SignedInRequest, unknown_value
from web.pages.charts import Figure
from web.pages.job_rows import read_colour_numbers
from web.pages.price_chart import price_figure
from web.pages.timeline_by_node import LinkOfWindow, rows_by_node
from web.pages.timeline_chart import Chart, timeline_figure
from web.pages.timeline_rows import jobs_in_order, rows_by_job, rows_by_team
from web.rest.downloads import csv_answer

BY = ("node", "team", "job")
NODES_PER_PAGE = 128
JOBS_PER_PAGE = 60
ROWS_OF_TABLE = 50


@dataclass(frozen=True)
class TimelineQuery:
    """The checked query of the page."""

    by: str
    window: str
    """Empty: not chosen."""
    gpu_type: str
    page: str


@login_required
@require_safe
def timeline_page(request: SignedInRequest) -> HttpResponse | StreamingHttpResponse:
    """The timeline by node, team or job; with `?format=csv` for a spreadsheet."""
    types = list(GpuType.objects.values_list("name", flat=True))
    asked = _asked(request, types)
    names = _node_names(asked)
    if request.GET.get("format") == "csv":
        timeline = _read(asked, request.user, names)[1]
        return csv_answer((COLUMNS, *export_rows(timeline, nodes_of_runs(timeline.runs))), name="timeline.csv")
    return render(request, "pages/timeline.html", _context(asked, request.user, names) | {"types": types})


def _asked(request: SignedInRequest, types: list[str]) -> TimelineQuery:
    get = request.GET.get
    asked = TimelineQuery(get("by", "") or "node", get("window", ""), get("gpu_type", ""), get("page", "1"))
    known = {"by": (asked.by, BY), "window": (asked.window, WINDOWS), "gpu_type": (asked.gpu_type, types)}
    for name, (value, choices) in known.items():
        if value not in ("", *choices):
            raise unknown_value(name, value, choices)
    return asked


def _read(asked: TimelineQuery, user: User, nodes: Sequence[str]) -> tuple[str, Timeline]:
    """The timeline of the window that was chosen; else of the shortest that holds what is shown of the last day."""
    now = timezone.now()
    frame = Frame.of(WINDOWS[asked.window or DEFAULT], now)
    timeline = read_timeline(frame, Viewer.of(user), nodes, asked.gpu_type)
    if asked.window:
        return asked.window, timeline
    shown = [run.began_at for run in timeline.runs if run.seen or asked.by != "job"]
    window = shortest_window(now - min(shown, default=frame.since))
    return window, timeline.cut_to(Frame.of(WINDOWS[window], now))


def _node_names(asked: TimelineQuery) -> list[str]:
    nodes = Node.objects.filter(gpu_type__name=asked.gpu_type) if asked.gpu_type else Node.objects.all()
    return list(nodes.order_by("gpu_type__name", "name").values_list("name", flat=True))


def _context(asked: TimelineQuery, user: User, names: list[str]) -> dict[str, Any]:
    pages = Paginator(names, NODES_PER_PAGE).get_page(asked.page)
    window, timeline = _read(asked, user, list(pages.object_list) if asked.by == "node" else [])
    chart, page = _chart(asked, timeline, pages, _windows_of(user))
    table, prices = timeline.runs[:ROWS_OF_TABLE], read_prices(timeline.frame, asked.gpu_type)
    nodes = nodes_of_runs(table)
    return {
        "asked": asked,
        "by": BY,
        "window": window,
        "windows": list(WINDOWS),
        "window_words": WINDOWS[window].words,
        "timeline": timeline,
        "figure": _script(timeline_figure(chart, timeline.frame)) if any(one.bars for one in chart.series) else "",
        "page": page,
        "prices": prices,
        "price_figure": price_figure(prices, timeline.frame, read_colour_numbers()) if prices else None,
        "cheap_later": cheap_later(prices),
        "runs": [(run, nodes.get(run.pk, ())) for run in table],
        "expected": timeline.expected[:ROWS_OF_TABLE],
        "outages": timeline.outages[-ROWS_OF_TABLE:],
        "node_windows": timeline.windows[-ROWS_OF_TABLE:],
    }


def _windows_of(user: User) -> LinkOfWindow:
    """The administration's page of a window; other persons than administrators have none."""
    return lambda pk: reverse("admin:scheduler_app_timewindow_change", args=[pk]) if user.is_staff else ""


def _script(figure: Figure) -> SafeString:
    """As `json_script`, in a tenth of the time: that looks at each of two million characters in turn."""
    text = json.dumps(figure).replace("&", "\\u0026").replace("<", "\\u003C").replace(">", "\\u003E")
    return format_html('<script id="figure" type="application/json">{}</script>', mark_safe(text))  # noqa: S308


def _chart(
    asked: TimelineQuery, timeline: Timeline, nodes: "Page[str]", link_of: LinkOfWindow
) -> "tuple[Chart, Page[Any] | None]":
    """The chart, and which page of nodes or jobs it shows."""
    if asked.by == "team":
        return rows_by_team(timeline), None
    if asked.by == "job":
        jobs = Paginator(list(jobs_in_order(timeline).items()), JOBS_PER_PAGE).get_page(asked.page)
        return rows_by_job(timeline, dict(jobs.object_list)), jobs
    on = list(nodes.object_list)
    return rows_by_node(timeline, read_gpus(on), read_gpus_of_runs(timeline.frame), link_of), nodes
