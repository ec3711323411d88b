"""Policies page: comparison, the current policy with its effects, history; a page of settings for each policy."""

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from allocation.policies import POLICIES
from insight_app.errors import TooManySolves
from insight_app.explain.policy_preview import preview_policy
from insight_app.explain.solve_slots import solve_slots
from insight_app.lab.node_savings import read_node_savings
from insight_app.models import PolicyGuard
from insight_app.policy_effects.effects import BEFORE, read_restart_cost
from scheduler_app.errors import ChangedSince, InvalidChoice, NothingToUndo
from scheduler_app.models import PolicySetting
from scheduler_app.policy.catalogue import PolicyDescription, describe_policies, describe_policy
from scheduler_app.policy.settings import (
    choose_policy,
    restore_policy,
    setting_before_the_first,
    undo_choice,
    with_defaults,
)
from web.pages.base import SignedInRequest, posted, show_error
from web.pages.policy_form import ChoiceForm

LATEST = 20
"""Rows of the history on the page; the admin has all."""


@login_required
@require_safe
def policies(request: SignedInRequest) -> HttpResponse:
    """The current policy, the comparison of all, and the history."""
    current, now = PolicySetting.objects.current(), timezone.now()
    history = list(PolicySetting.objects.select_related("created_by")[:LATEST])
    since = max(current.created_at, now - BEFORE) if current.pk else now - BEFORE
    context = {
        "current": current,
        "parameters": with_defaults(current.policy, current.parameters),
        "policies": describe_policies(),
        "history": history,
        "guard": PolicyGuard.objects.current(),
        "cost": read_restart_cost(since, now),
        "savings": read_node_savings(request.user, now),
        "before": history[1] if len(history) > 1 else setting_before_the_first(current),
    }
    return render(request, "pages/policies.html", context)


@login_required
@require_safe
def policy(request: SignedInRequest, name: str) -> HttpResponse:
    """One policy: formula, parameters, sources, and for staff the form that makes it current."""
    current = PolicySetting.objects.current()
    return _page(request, ChoiceForm(policy=_described(name), current=current), current)


@login_required
@require_POST
def choose(request: SignedInRequest, name: str) -> HttpResponse:
    """Make a policy current. Staff only."""
    _refuse_others(request)
    current = PolicySetting.objects.current()
    form = ChoiceForm(request.POST, policy=_described(name), current=current)
    if not form.is_valid():
        return _page(request, form, current)
    try:
        choose_policy(form.setting(), actor=request.user)
    except InvalidChoice as error:
        show_error(request, error)
        return _page(request, form, current)
    messages.success(request, f"{name} is the current policy from the next round on.")
    return redirect("policies")


@login_required
@require_POST
def preview(request: SignedInRequest, name: str) -> HttpResponse:
    """Show what the next round would do under a policy as filled in. Staff only; nothing is written."""
    _refuse_others(request)
    current = PolicySetting.objects.current()
    form = ChoiceForm(request.POST, policy=_described(name), current=current)
    if not form.is_valid():
        return _page(request, form, current)
    try:
        with solve_slots.slot_for(request.user):
            found = preview_policy(form.setting(), timezone.now())
    except (InvalidChoice, TooManySolves) as error:
        show_error(request, error)
        return _page(request, form, current)
    return render(request, "pages/policy_preview.html", {"form": form, "preview": found})


@login_required
@require_POST
def undo(request: SignedInRequest, pk: int) -> HttpResponse:
    """Undo the choice of a setting, if no other has been chosen since. Staff only."""
    _refuse_others(request)
    chosen = get_object_or_404(PolicySetting, pk=pk)
    try:
        before = undo_choice(chosen, actor=request.user, note=posted(request, "note"))
    except (ChangedSince, InvalidChoice, NothingToUndo) as error:
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


def _described(name: str) -> PolicyDescription:
    if name not in POLICIES:
        raise Http404
    return describe_policy(name)


def _refuse_others(request: SignedInRequest) -> None:
    if not request.user.is_staff:
        raise PermissionDenied


def _page(request: SignedInRequest, form: ChoiceForm, current: PolicySetting) -> HttpResponse:
    """The policy of the form; a form that was filled in is open, with its errors."""
    context = {
        "policy": form.policy,
        "form": form,
        "is_current": form.policy.name == current.policy,
        "refused": form.non_field_errors() if form.is_bound else (),
    }
    return render(request, "pages/policy.html", context)
