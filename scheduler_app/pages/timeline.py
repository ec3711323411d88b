"""Timeline page: what ran on the GPUs, what runs, and what is expected to, as a chart, a table and CSV."""

import csv
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django.contrib.auth.decorators import login_required
from django.core.paginator import Page, Paginator
from django.http import Http404, HttpResponse, StreamingHttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe
from django.views.decorators.http import require_safe

from cluster_app.models import GpuType, Node
from scheduler_app.pages.base import SignedInRequest
from scheduler_app.pages.charts import Figure
from scheduler_app.pages.timeline_by_node import rows_by_node
from scheduler_app.pages.timeline_chart import Chart, timeline_figure
from scheduler_app.pages.timeline_rows import jobs_in_order, rows_by_job, rows_by_team
from scheduler_app.timeline.export import COLUMNS, export_rows
from scheduler_app.timeline.reading import Sight, Timeline, nodes_of_runs, read_gpus, read_gpus_of_runs, read_timeline
from scheduler_app.timeline.window import WINDOWS, Frame

BY = ("node", "team", "job")
NODES_PER_PAGE = 128
JOBS_PER_PAGE = 60
ROWS_OF_TABLE = 100


@dataclass(frozen=True)
class Asked:
    """The checked query of the page."""

    by: str
    window: str
    gpu_type: str
    page: str

    def frame(self) -> Frame:
        return Frame.of(WINDOWS[self.window], timezone.now())


@login_required
@require_safe
def timeline_page(request: SignedInRequest) -> HttpResponse | StreamingHttpResponse:
    """The timeline by node, team or job; with `?format=csv` for a spreadsheet."""
    types = list(GpuType.objects.values_list("name", flat=True))
    asked, sight = _asked(request, types), Sight.of(request.user)
    names = _node_names(asked)
    if request.GET.get("format") == "csv":
        return _as_csv(read_timeline(asked.frame(), sight, names, asked.gpu_type))
    return render(request, "scheduler_app/timeline.html", _context(asked, sight, names) | {"types": types})


def _asked(request: SignedInRequest, types: list[str]) -> Asked:
    get = request.GET.get
    asked = Asked(get("by", "node"), get("window", "24h"), get("gpu_type", ""), get("page", "1"))
    if asked.by not in BY or asked.window not in WINDOWS or asked.gpu_type not in ("", *types):
        raise Http404
    return asked


def _node_names(asked: Asked) -> list[str]:
    nodes = Node.objects.filter(gpu_type__name=asked.gpu_type) if asked.gpu_type else Node.objects.all()
    return list(nodes.order_by("gpu_type__name", "name").values_list("name", flat=True))


def _context(asked: Asked, sight: Sight, names: list[str]) -> dict[str, Any]:
    pages = Paginator(names, NODES_PER_PAGE).get_page(asked.page)
    on = list(pages.object_list) if asked.by == "node" else []
    timeline = read_timeline(asked.frame(), sight, on, asked.gpu_type)
    chart, page = _chart(asked, timeline, pages)
    table = timeline.runs[:ROWS_OF_TABLE]
    nodes = nodes_of_runs(table)
    return {
        "asked": asked,
        "by": BY,
        "windows": list(WINDOWS),
        "window_words": WINDOWS[asked.window].words,
        "timeline": timeline,
        "figure": _script(timeline_figure(chart, timeline.frame)) if any(one.bars for one in chart.series) else "",
        "page": page,
        "runs": [(run, nodes.get(run.pk, ())) for run in table],
        "expected": timeline.expected[:ROWS_OF_TABLE],
        "outages": timeline.outages[-ROWS_OF_TABLE:],
    }


def _script(figure: Figure) -> SafeString:
    """As `json_script`, in a tenth of the time: that looks at each of two million characters in turn."""
    text = json.dumps(figure).replace("&", "\\u0026").replace("<", "\\u003C").replace(">", "\\u003E")
    return format_html('<script id="figure" type="application/json">{}</script>', mark_safe(text))  # noqa: S308


def _chart(asked: Asked, timeline: Timeline, nodes: "Page[str]") -> "tuple[Chart, Page[Any] | None]":
    """The chart, and which page of nodes or jobs it shows."""
    if asked.by == "team":
        return rows_by_team(timeline), None
    if asked.by == "job":
        jobs = Paginator(list(jobs_in_order(timeline).items()), JOBS_PER_PAGE).get_page(asked.page)
        return rows_by_job(timeline, dict(jobs.object_list)), jobs
    on = list(nodes.object_list)
    return rows_by_node(timeline, read_gpus(on), read_gpus_of_runs(timeline.frame)), nodes


class _Echo:
    """A file that hands back what is written: rows of CSV one by one."""

    def write(self, row: str) -> str:
        return row


def _as_csv(timeline: Timeline) -> StreamingHttpResponse:
    written = csv.writer(_Echo())
    rows: Iterator[str] = (
        written.writerow(row) for row in (COLUMNS, *export_rows(timeline, nodes_of_runs(timeline.runs)))
    )
    headers = {"Content-Disposition": 'attachment; filename="timeline.csv"'}
    return StreamingHttpResponse(rows, content_type="text/csv", headers=headers)
