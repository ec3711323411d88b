"""Policy lab: its form, its runs, and the result of a run."""

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST, require_safe
from django_htmx.http import HttpResponseClientRefresh

from insight_app.errors import InvalidLabRun, LabRunHasEnded, TooManyLabRuns
from insight_app.lab.applying import applied_from
from insight_app.lab.node_savings import read_node_savings
from insight_app.lab.requests import ask_for_run, cancel_run
from insight_app.lab.scenario import read_node_gpus
from insight_app.models import LabRun
from insight_app.models.lab_run import HIDDEN
from scheduler_app.models import PolicySetting
from web.pages.base import SignedInRequest, paginate, show_error
from web.pages.lab_form import LabForm
from web.pages.lab_result import shown_result


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def lab(request: SignedInRequest) -> HttpResponse:
    """The form, with the policies that `policy` names, and the runs that the user may see; valid, it asks for a run."""
    nodes = read_node_gpus()
    if request.method != "POST":
        return _page(request, LabForm(nodes=nodes, initial={"policies": request.GET.getlist("policy")}))
    form = LabForm(request.POST, request.FILES, nodes=nodes)
    run = _asked(request, form) if form.is_valid() else None
    return redirect("lab-run", run.pk) if run else _page(request, form)


def _asked(request: SignedInRequest, form: LabForm) -> LabRun | None:
    """The requested run; None if it is refused, with the errors in the form."""
    try:
        return ask_for_run(form.request(), owner=request.user, now=timezone.now())
    except InvalidLabRun as error:
        form.show(error.faults)
    except TooManyLabRuns as error:
        show_error(request, error)
    return None


def _page(request: SignedInRequest, form: LabForm) -> HttpResponse:
    runs = LabRun.objects.visible_to(request.user).select_related("owner").defer("result")
    context = {"form": form, "savings": read_node_savings(request.user, timezone.now()), **paginate(request, runs)}
    return render(request, "pages/lab/index.html", context)


@login_required
@require_safe
def lab_run(request: SignedInRequest, pk: int) -> HttpResponse:
    """Progress of a run, renewed until it has ended, and then its result."""
    run = _run(request, pk)
    if request.htmx and not run.is_unfinished:  # type: ignore[attr-defined]  # of its middleware
        return HttpResponseClientRefresh()
    seen = run.shows_result_to(request.user)
    result = shown_result(run.result) if run.result and seen else None
    message = run.message if seen else HIDDEN
    context = {"run": run, "message": message, "result": result}
    if result and request.user.is_staff:
        context |= {"applied": applied_from(run), "current": PolicySetting.objects.current()}
    return render(request, "pages/lab/run.html", context)


@login_required
@require_POST
def cancel(request: SignedInRequest, pk: int) -> HttpResponse:
    try:
        cancel_run(_run(request, pk), now=timezone.now())
    except LabRunHasEnded as error:
        show_error(request, error)
    else:
        messages.success(request, f"Run {pk} is cancelled.")
    return redirect("lab-run", pk)


def _run(request: SignedInRequest, pk: int) -> LabRun:
    return get_object_or_404(LabRun.objects.visible_to(request.user).select_related("owner"), pk=pk)
