"""The cluster: every GPU, who has it, and taking nodes out of service."""

from itertools import groupby

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from cluster_app.errors import ReasonMissing
from cluster_app.models import Node
from cluster_app.services import cordon, drain, resume
from scheduler_app.emptying import occupancies, words_of
from scheduler_app.looking import gpu_counts, gpus_by_node
from scheduler_app.views.visit import Visit, tell


@login_required
@require_safe
def cluster(request: Visit) -> HttpResponse:
    nodes, now = gpus_by_node(request.user), timezone.now()
    clearing = occupancies([held.node for held in nodes if held.node.state != Node.State.READY], now)
    words = {name: words_of(found, now) for name, found in clearing.items()}
    types = [
        (kind, [(held, words.get(held.node.name, "")) for held in of_type])
        for kind, of_type in groupby(nodes, key=lambda held: held.node.gpu_type)
    ]
    return render(request, "scheduler_app/cluster.html", {"types": types, "gpu_counts": gpu_counts()})


@login_required
@require_POST
def act_on_node(request: Visit, name: str, verb: str) -> HttpResponse:
    """Cordon, drain or resume: for staff."""
    if not request.user.is_staff:
        raise PermissionDenied
    node = get_object_or_404(Node, name=name)
    try:
        _do(node, verb, reason=request.POST.get("reason", ""), request=request)
    except ReasonMissing as error:
        tell(request, error)
    return redirect("cluster")


def _do(node: Node, verb: str, *, reason: str, request: Visit) -> None:
    match verb:
        case "cordon":
            cordon(node, reason=reason, actor=request.user)
            messages.success(request, f"{node} takes no new jobs; what runs there goes on.")
        case "drain":
            drain(node, reason=reason, actor=request.user)
            messages.success(request, f"{node} is drained: its jobs are moved away, gracefully.")
        case "resume":
            resume(node, actor=request.user)
            messages.success(request, f"{node} takes new jobs again.")
        case _:
            raise Http404
