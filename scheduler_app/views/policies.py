"""The policies: what each does and when to choose it, which one counts, and which ones did."""

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_POST, require_safe

from allocation.policies import POLICIES
from scheduler_app.choosing import in_full
from scheduler_app.describing import Described, all_described, described
from scheduler_app.errors import InvalidChoice
from scheduler_app.forms import ChoiceForm
from scheduler_app.models import PolicySetting
from scheduler_app.services import choose_again, choose_policy
from scheduler_app.views.visit import Visit, tell

LATEST = 20
"""Choices of the past on the page; the administration has all."""


@login_required
@require_safe
def policies(request: Visit) -> HttpResponse:
    return _page(request)


@login_required
@require_POST
def choose(request: Visit, name: str) -> HttpResponse:
    """From now on decide so: for staff."""
    form = ChoiceForm(request.POST, policy=_policy(request, name), current=PolicySetting.objects.current())
    if not form.is_valid():
        return _page(request, form)
    try:
        choose_policy(form.setting(), actor=request.user)
    except InvalidChoice as error:
        tell(request, error)
        return _page(request, form)
    messages.success(request, f"From the next round on, {name} decides.")
    return redirect("policies")


@login_required
@require_POST
def go_back(request: Visit, pk: int) -> HttpResponse:
    """Go back to a choice of the past: for staff."""
    _refuse_others(request)
    try:
        chosen = choose_again(get_object_or_404(PolicySetting, pk=pk), actor=request.user)
    except InvalidChoice as error:
        tell(request, error)
    else:
        messages.success(request, f"From the next round on, {chosen.policy} decides again.")
    return redirect("policies")


def _policy(request: Visit, name: str) -> Described:
    _refuse_others(request)
    if name not in POLICIES:
        raise Http404
    return described(name)


def _refuse_others(request: Visit) -> None:
    if not request.user.is_staff:
        raise PermissionDenied


def _page(request: Visit, filled: ChoiceForm | None = None) -> HttpResponse:
    current = PolicySetting.objects.current()
    forms = {policy.name: ChoiceForm(policy=policy, current=current) for policy in all_described()}
    if filled is not None:
        forms[filled.policy.name] = filled
    history = list(PolicySetting.objects.select_related("created_by")[:LATEST])
    context = {
        "current": current,
        "parameters": in_full(current.policy, current.parameters),
        "policies": [(policy, forms[policy.name]) for policy in all_described()],
        "history": history,
        "filled": filled.policy.name if filled else "",
        "refused": filled.non_field_errors() if filled else (),
    }
    return render(request, "scheduler_app/policies.html", context)
