"""Notifications page: targets of the user and of teams, and the notifications sent to them."""

from collections.abc import Callable
from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import User
from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST

from jobs_app.errors import InvalidSpec
from jobs_app.models import Notification, NotificationTarget, Team
from jobs_app.notifications.addresses import MOST_CHARACTERS
from jobs_app.notifications.targets import (
    add_target,
    change_events,
    delete_target,
    send_again,
    send_test,
)
from jobs_app.notifications.texts import sentence_of
from web.pages.base import DOMAIN_ERRORS, SignedInRequest, show_error

MOST_SHOWN = 20
EVENTS = [(event.value, event.label) for event in NotificationTarget.CHOSEN]
FIELDS = {"/address": "address", "/events": "events"}


class TargetForm(forms.Form):
    """A target of the user, or of a team that the user manages."""

    kind = forms.ChoiceField(choices=NotificationTarget.Kind.choices, initial="webhook", label="By")
    address = forms.CharField(
        max_length=MOST_CHARACTERS,
        widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"}),
        help_text="A mail address, Slack's address of an incoming webhook, or that of your own: https://…",
    )
    team = forms.ModelChoiceField(Team.objects.none(), required=False, empty_label="my jobs", label="For")
    events = forms.MultipleChoiceField(choices=EVENTS, widget=forms.CheckboxSelectMultiple, label="When")

    def __init__(self, *args: Any, user: User, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        teams: Any = self.fields["team"]
        teams.queryset = Team.objects.managed_by(user)

    def add(self, user: User) -> str | None:
        """Add the target; its key, None if it is not valid, which the form then says."""
        facts = self.cleaned_data
        kind = NotificationTarget.Kind(facts["kind"])
        try:
            return add_target(kind, facts["address"], facts["events"], team=facts["team"], actor=user).key
        except InvalidSpec as error:
            for fault in error.faults:
                self.add_error(FIELDS.get(fault["pointer"]), fault["detail"])
            return None


@login_required
@never_cache
@sensitive_post_parameters("address")
@require_http_methods(["GET", "HEAD", "POST"])
def notifications(request: SignedInRequest) -> HttpResponse:
    form = TargetForm(request.POST or None, user=request.user, initial={"events": ["job_failed"]})
    if request.method == "POST" and form.is_valid() and (key := form.add(request.user)) is not None:
        if key:
            return _page(request, TargetForm(user=request.user), key=key)
        messages.success(request, "The target is added. Send it a test to see that it is reached.")
        return redirect("notifications")
    return _page(request, form)


def _page(request: SignedInRequest, form: TargetForm, key: str = "") -> HttpResponse:
    targets = NotificationTarget.objects.visible_to(request.user).select_related("team", "user")
    sent = Notification.objects.visible_to(request.user).select_related("target", "target__team", "target__user")
    own = {None, *Team.objects.managed_by(request.user)}
    rows = [(target, target.team in own) for target in targets]
    lines = [(one, sentence_of(one), one.target.team in own) for one in sent[:MOST_SHOWN]]
    context = {"form": form, "targets": rows, "notifications": lines, "key": key, "events": EVENTS}
    return render(request, "pages/notifications.html", context)


def _test(request: SignedInRequest, target: NotificationTarget) -> str:
    send_test(target, timezone.now(), actor=request.user)
    return f"A test to {target.shown} is on its way: see below what becomes of it."


def _change(request: SignedInRequest, target: NotificationTarget) -> str:
    change_events(target, request.POST.getlist("events"), actor=request.user)
    return f"{target.shown} is told of: {', '.join(target.events_in_words)}."


def _delete(request: SignedInRequest, target: NotificationTarget) -> str:
    delete_target(target, actor=request.user)
    return f"{target.shown} is deleted."


VERBS: dict[str, Callable[[SignedInRequest, NotificationTarget], str]] = {
    "test": _test,
    "change": _change,
    "delete": _delete,
}


@login_required
@require_POST
def act_on_target(request: SignedInRequest, pk: int, verb: str) -> HttpResponse:
    if verb not in VERBS:
        raise Http404
    target = get_object_or_404(NotificationTarget.objects.visible_to(request.user).select_related("team"), pk=pk)
    return _done(request, lambda: VERBS[verb](request, target))


@login_required
@require_POST
def send(request: SignedInRequest, pk: str) -> HttpResponse:
    found = Notification.objects.visible_to(request.user).select_related("target__team")
    notification = get_object_or_404(found, pk=pk)

    def again() -> str:
        send_again(notification, timezone.now(), actor=request.user)
        return "It is on its way again."

    return _done(request, again)


def _done(request: SignedInRequest, act: Callable[[], str]) -> HttpResponse:
    try:
        messages.success(request, act())
    except DOMAIN_ERRORS as error:
        show_error(request, error)
    return redirect("notifications")
