"""Page of the jobs that wait for each other: a drawing in columns, the critical path, and the same as a table."""

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.http import require_safe

from insight_app.explain.job_graph import MOST_JOBS, GraphNode, JobGraph, read_job_graph
from jobs_app.models import Job
from web.pages.base import SignedInRequest

WIDTH, HEIGHT, BETWEEN_COLUMNS, BETWEEN_ROWS, MARGIN = 180, 44, 56, 16, 8
MOST_LETTERS = 24


class Box(NamedTuple):
    """A node at its place in the drawing, in pixels."""

    node: GraphNode
    x: int
    y: int

    @property
    def label(self) -> str:
        name = self.node.name
        return name if len(name) <= MOST_LETTERS else f"{name[: MOST_LETTERS - 1]}\N{HORIZONTAL ELLIPSIS}"


class Arrow(NamedTuple):
    """From the right of a parent to the left of its child."""

    path: str
    is_critical: bool


class Drawing(NamedTuple):
    boxes: Sequence[Box]
    arrows: Sequence[Arrow]
    width: int
    height: int


@login_required
@require_safe
def job_graph(request: SignedInRequest, pk: UUID) -> HttpResponse:
    visible = Job.objects.visible_to(request.user)
    job = get_object_or_404(visible.select_related("team"), pk=pk)
    graph = read_job_graph(job, visible)
    names = {node.key: node.name for node in graph.nodes}
    after: dict[UUID, list[str]] = defaultdict(list)
    for parent, child in graph.edges:
        after[child].append(names[parent])
    rows = [(node, ", ".join(after[node.key])) for node in graph.nodes]
    own = job.array_id or job.pk
    context = {"job": job, "own": own, "graph": graph, "rows": rows, "drawing": drawn(graph), "most": MOST_JOBS}
    return render(request, "pages/job_graph.html", context)


def drawn(graph: JobGraph) -> Drawing:
    """Each node in the column of its longest chain, from the top in the order of submission."""
    filled: dict[int, int] = defaultdict(int)
    boxes: dict[UUID, Box] = {}
    for node in graph.nodes:
        row, filled[node.column] = filled[node.column], filled[node.column] + 1
        x, y = node.column * (WIDTH + BETWEEN_COLUMNS), row * (HEIGHT + BETWEEN_ROWS)
        boxes[node.key] = Box(node, MARGIN + x, MARGIN + y)
    arrows = [_arrow(boxes[parent], boxes[child]) for parent, child in graph.edges]
    right, bottom = max(box.x for box in boxes.values()), max(box.y for box in boxes.values())
    in_front = sorted(arrows, key=lambda arrow: arrow.is_critical)
    return Drawing(list(boxes.values()), in_front, right + WIDTH + MARGIN, bottom + HEIGHT + MARGIN)


def _arrow(parent: Box, child: Box) -> Arrow:
    x, y, end_x, end_y = parent.x + WIDTH, parent.y + HEIGHT // 2, child.x, child.y + HEIGHT // 2
    bend = (end_x - x) // 2
    path = f"M{x} {y}C{x + bend} {y} {end_x - bend} {end_y} {end_x - 3} {end_y}"
    return Arrow(path, parent.node.is_critical and child.node.is_critical)
