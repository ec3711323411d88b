"""Policies page: description and settings of each policy, the current one and the history."""

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from allocation.policies import POLICIES
from scheduler_app.errors import ChangedSince, InvalidChoice, TooManySolves
from scheduler_app.explain.policy_preview import preview_policy
from scheduler_app.explain.solve_slots import solve_slots
from scheduler_app.models import PolicyGuard, PolicySetting
from scheduler_app.pages.base import SignedInRequest, show_error
from scheduler_app.pages.forms import ChoiceForm
from scheduler_app.policy.catalogue import PolicyDescription, describe_policies, describe_policy
from scheduler_app.policy.settings import choose_policy, restore_policy, undo_choice, with_defaults

LATEST = 20
"""Rows of the history on the page; the admin has all."""


@login_required
@require_safe
def policies(request: SignedInRequest) -> HttpResponse:
    return _page(request)


@login_required
@require_POST
def choose(request: SignedInRequest, name: str) -> HttpResponse:
    """Make a policy current. Staff only."""
    form = ChoiceForm(request.POST, policy=_policy(request, name), current=PolicySetting.objects.current())
    if not form.is_valid():
        return _page(request, form)
    try:
        choose_policy(form.setting(), actor=request.user)
    except InvalidChoice as error:
        show_error(request, error)
        return _page(request, form)
    messages.success(request, f"{name} is the current policy from the next round on.")
    return redirect("policies")


@login_required
@require_POST
def preview(request: SignedInRequest, name: str) -> HttpResponse:
    """Show what the next round would do under a policy as filled in. Staff only; nothing is written."""
    form = ChoiceForm(request.POST, policy=_policy(request, name), current=PolicySetting.objects.current())
    if not form.is_valid():
        return _page(request, form)
    try:
        with solve_slots.slot_for(request.user):
            found = preview_policy(form.setting(), timezone.now())
    except (InvalidChoice, TooManySolves) as error:
        show_error(request, error)
        return _page(request, form)
    return render(request, "scheduler_app/policy_preview.html", {"form": form, "preview": found})


@login_required
@require_POST
def undo(request: SignedInRequest, pk: int) -> HttpResponse:
    """Undo the choice of a setting, if no other has been chosen since. Staff only."""
    _refuse_others(request)
    chosen = get_object_or_404(PolicySetting, pk=pk)
    try:
        before = undo_choice(chosen, actor=request.user, note=request.POST.get("note", "").strip())
    except (ChangedSince, InvalidChoice) as error:
        show_error(request, error)
    else:
        messages.success(request, f"Undone: {before.policy} is the current policy again from the next round on.")
    return redirect("policies")


@login_required
@require_POST
def go_back(request: SignedInRequest, pk: int) -> HttpResponse:
    """Make an earlier setting current again. Staff only."""
    _refuse_others(request)
    try:
        chosen = restore_policy(get_object_or_404(PolicySetting, pk=pk), actor=request.user)
    except InvalidChoice as error:
        show_error(request, error)
    else:
        messages.success(request, f"{chosen.policy} is the current policy again from the next round on.")
    return redirect("policies")


def _policy(request: SignedInRequest, name: str) -> PolicyDescription:
    _refuse_others(request)
    if name not in POLICIES:
        raise Http404
    return describe_policy(name)


def _refuse_others(request: SignedInRequest) -> None:
    if not request.user.is_staff:
        raise PermissionDenied


def _page(request: SignedInRequest, filled: ChoiceForm | None = None) -> HttpResponse:
    current = PolicySetting.objects.current()
    forms = {policy.name: ChoiceForm(policy=policy, current=current) for policy in describe_policies()}
    if filled is not None:
        forms[filled.policy.name] = filled
    history = list(PolicySetting.objects.select_related("created_by")[:LATEST])
    context = {
        "current": current,
        "parameters": with_defaults(current.policy, current.parameters),
        "policies": [(policy, forms[policy.name]) for policy in describe_policies()],
        "history": history,
        "guard": PolicyGuard.objects.current(),
        "before": (history[1] if len(history) > 1 else PolicySetting()) if history else None,
        "filled": filled.policy.name if filled else "",
        "refused": filled.non_field_errors() if filled else (),
    }
    return render(request, "scheduler_app/policies.html", context)
