"""Cluster page: every GPU with the job that holds it; drain, cordon and resume of nodes."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import groupby

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.core.paginator import Paginator
from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe
from django_filters import CharFilter, ChoiceFilter, FilterSet, ModelChoiceFilter

from cluster_app.engine_reports import engine_message
from cluster_app.errors import ClusterError
from cluster_app.models import LOCAL_ENGINE, Engine, GpuType, Node, NodeQuerySet, in_service
from cluster_app.services import cordon, drain, resume
from connections_app.agents.join_agent import joined_machines
from connections_app.agents.updates import held_up_by
from insight_app.explain.drain_estimate import describe, occupancies
from insight_app.gpu_occupancy import gpu_counts, gpus_by_node
from scheduler_app.windows.reading import WindowRow, read_windows
from web.pages.base import SignedInRequest, show_error
from web.pages.gpu_colours import CHOICES, colours_of, in_words

NODES_PER_PAGE = 60
DENSE_NODES_PER_PAGE = 250
DENSE_FROM = 160
"""GPUs from which the dense view is the usual one."""
VIEWS = ("nodes", "dense")
MOST_WINDOWS = 10
"""Windows that are shown, those that begin first."""
MOST_NAMED = 3
"""Nodes of a window that are named."""


class NodeFilter(FilterSet):  # type: ignore[misc]  # the library has no types
    """Filters of the page Cluster."""

    q = CharFilter("name", "icontains")
    gpu_type = ModelChoiceFilter(queryset=GpuType.objects.current(), to_field_name="name")
    service = ChoiceFilter(
        choices=[("in", "in service"), ("out", "out of service or unhealthy")], method="filter_by_service"
    )

    def filter_by_service(self, nodes: NodeQuerySet, _: str, service: str) -> NodeQuerySet:
        return nodes.filter(in_service()) if service == "in" else nodes.exclude(in_service())


@login_required
@require_safe
def cluster(request: SignedInRequest) -> HttpResponse:
    """Nodes that match the filters, by GPU type, with their GPUs; paginated."""
    nodes_by_type = Node.objects.current().select_related("gpu_type").order_by("gpu_type__name", "name")
    filtered = NodeFilter(request.GET, queryset=nodes_by_type)
    counts = gpu_counts()
    view = _choice(request, "view", VIEWS, usual=VIEWS[sum(count.total for count in counts) > DENSE_FROM])
    per_page = DENSE_NODES_PER_PAGE if view == "dense" else NODES_PER_PAGE
    page = Paginator(filtered.qs, per_page).get_page(request.GET.get("page"))
    nodes, now = gpus_by_node(request.user, list(page.object_list)), timezone.now()
    colours = colours_of(nodes, _choice(request, "colour", CHOICES, usual=CHOICES[0]))
    clearing = occupancies([held.node for held in nodes if held.node.state != Node.State.READY], now)
    words = {name: describe(found, now) for name, found in clearing.items()}
    engines = Engine.objects.in_bulk(field_name="name")
    types = [
        (
            kind,
            [
                (
                    held,
                    words.get(held.node.name, ""),
                    engine_message(held.node, engines[str(held.node.engine_id)]),
                    in_words(held),
                )
                for held in of_type
            ],
        )
        for kind, of_type in groupby(nodes, key=lambda held: held.node.gpu_type)
    ]
    silent = [engine for engine in engines.values() if engine.enabled and engine.fault]
    windows = read_windows(now)
    context = {
        "windows": _with_names(windows[:MOST_WINDOWS]),
        "reserved": reserved_now(windows, now),
        "types": types,
        "filter": filtered,
        "page": page,
        "gpu_counts": counts,
        "view": view,
        "views": VIEWS,
        "colours": colours,
        "colour_choices": CHOICES,
        "silent_engines": silent,
        "update_held_up_by": held_up_by(now) if request.user.is_staff else [],
        "local_engine": LOCAL_ENGINE,
        "machines": joined_machines(request.user, now),
    }
    return render(request, "pages/cluster.html", context)


def reserved_now(windows: Iterable[WindowRow], now: datetime) -> dict[int, str]:
    """For which team each node that is reserved now is, until when and why, by node."""
    going_on = [row for row in windows if row.team_id is not None and row.covers(now)]
    return {node: row.state_words for row in going_on for node in row.nodes}


def _with_names(windows: Sequence[WindowRow]) -> list[tuple[WindowRow, list[str], int]]:
    """These windows, each with the names of its first nodes and the number of the others."""
    named = [sorted(window.nodes)[:MOST_NAMED] for window in windows]
    names = dict(Node.objects.filter(pk__in={pk for nodes in named for pk in nodes}).values_list("pk", "name"))
    return [
        (window, [names[pk] for pk in nodes if pk in names], len(window.nodes) - len(nodes))
        for window, nodes in zip(windows, named, strict=True)
    ]


def _choice(request: SignedInRequest, name: str, choices: Sequence[str], *, usual: str) -> str:
    """The choice in the address; the default for an unknown one."""
    asked = request.GET.get(name, usual)
    return asked if asked in choices else usual


@login_required
@require_POST
def act_on_node(request: SignedInRequest, name: str, verb: str) -> HttpResponse:
    """Cordon, drain or resume a node. Staff only."""
    if not request.user.is_staff:
        raise PermissionDenied
    node = get_object_or_404(Node, name=name)
    try:
        _do(node, verb, reason=request.POST.get("reason", ""), request=request)
    except ClusterError as error:
        show_error(request, error)
    if request.GET.get("from") == "node":
        return redirect("node", node.name)
    return redirect(f"{reverse('cluster')}?{request.GET.urlencode()}".rstrip("?"))  # with the filters, at that page


def _do(node: Node, verb: str, *, reason: str, request: SignedInRequest) -> None:
    match verb:
        case "cordon":
            cordon(node, reason=reason, actor=request.user)
            messages.success(request, f"{node} is cordoned: no new jobs are placed there; running jobs continue.")
        case "drain":
            drain(node, reason=reason, actor=request.user)
            messages.success(request, f"Draining {node}: its jobs are stopped gracefully and requeued.")
        case "resume":
            resume(node, actor=request.user, reason=reason)
            node.refresh_from_db()
            back = "is being woken" if node.state == Node.State.WAKING else "is back in service"
            messages.success(request, f"{node} {back}.")
        case _:
            raise Http404
