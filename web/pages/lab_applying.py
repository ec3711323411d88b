"""Page on which a policy of a lab run is previewed and applied."""

from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from insight_app.errors import CannotApply, TooManySolves
from insight_app.explain.policy_preview import preview_policy
from insight_app.explain.solve_slots import solve_slots
from insight_app.lab.applying import (
    GUARD_H,
    MOST_GUARD_H,
    Application,
    apply_run,
    cautions_on,
    prediction_of,
    setting_of,
)
from insight_app.models import LabRun
from scheduler_app.errors import InvalidChoice
from web.pages.base import SignedInRequest, show_error

FIGURES = {
    "avg_jct_h": "Mean job completion time",
    "p99_jct_h": "99th percentile",
    "queueing_h": "Mean time not running",
    "makespan_h": "Makespan",
    "utilization": "GPUs busy",
    "restarts_per_job": "Restarts per job",
}


class ApplyForm(forms.Form):
    note = forms.CharField(required=False, max_length=250, help_text="Reason, shown in the history.")
    guard_hours = forms.FloatField(
        label="Watch for (h)",
        min_value=0.1,
        max_value=MOST_GUARD_H,
        help_text="For how long the effects are compared with the prediction.",
    )
    undo_by_itself = forms.BooleanField(
        required=False, label="Undo by itself", help_text="Once the effects are worse than predicted."
    )


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def apply(request: SignedInRequest, pk: int) -> HttpResponse:
    """Preview a policy of the run, or with POST apply it. Staff only."""
    if not request.user.is_staff:
        raise PermissionDenied
    run = get_object_or_404(LabRun.objects.select_related("owner"), pk=pk)
    given = request.POST if request.method == "POST" else request.GET
    try:
        predicted = prediction_of(run, given.get("policy", ""))
        # One click from the run's page sends neither note nor hours: they have their defaults.
        form = ApplyForm(
            {"guard_hours": GUARD_H} | given.dict() if request.method == "POST" else None, initial=_usual()
        )
        if form.is_bound and form.is_valid():
            return _applied(request, run, Application(policy=predicted["policy"], **form.cleaned_data))
        return _page(request, run, predicted, form)
    except (CannotApply, InvalidChoice) as error:
        show_error(request, error)
        return redirect("policies")


def _usual() -> dict[str, Any]:
    return {"guard_hours": GUARD_H}


def _applied(request: SignedInRequest, run: LabRun, asked: Application) -> HttpResponse:
    now = timezone.now()
    cautions = cautions_on(run, now)
    chosen = apply_run(run, asked, actor=request.user, now=now).setting
    messages.success(request, f"{chosen.policy} is the current policy from the next round on; its effects are watched.")
    for caution in cautions:
        messages.warning(request, caution)
    return redirect("policies")


def _page(request: SignedInRequest, run: LabRun, predicted: dict[str, Any], form: ApplyForm) -> HttpResponse:
    now, setting = timezone.now(), setting_of(run, predicted["policy"])
    context = {
        "run": run,
        "setting": setting,
        "predicted": predicted,
        "figures": [
            (words, name, [predicted[of].get(name) for of in ("actual", "present", "chosen")])
            for name, words in FIGURES.items()
        ],
        "cautions": cautions_on(run, now),
        "form": form,
    }
    try:
        with solve_slots.slot_for(request.user):
            context["preview"] = preview_policy(setting, now)
    except TooManySolves as error:
        show_error(request, error)
    return render(request, "pages/lab/apply.html", context)
