"""Pages of recurring jobs: the list, one with its due times, and the form to add or change one."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import UUID

from django import forms
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from jobs_app.errors import InvalidSpec
from jobs_app.models import RecurringJob
from jobs_app.submission.conversion import write_yaml
from scheduler_app.recurring_jobs.admission import without_times
from scheduler_app.recurring_jobs.editing import (
    add_recurring_job,
    admitted_recurring_job,
    change_recurring_job,
    delete_recurring_job,
    pause_recurring_job,
    resume_recurring_job,
)
from scheduler_app.recurring_jobs.history import last_runs, with_states
from scheduler_app.recurring_jobs.submission import admitted_run, run_now
from web.pages.base import DOMAIN_ERRORS, SignedInRequest, paginate, show_error
from web.pages.new_job import parsed_yaml, spec_seen
from web.rest.errors import Fault
from web.rest.pagination import ByName

SHOWN_IN_LIST, SHOWN = 5, 50
"""Last due times of a recurring job in the list, and on its page."""
EXAMPLE = {"name": "nightly", "command": "python train.py", "gpus": 1}


class RecurringJobForm(forms.Form):
    """Schedule of a recurring job, and its spec as YAML; both are checked as over REST."""

    name = forms.CharField(required=False, max_length=100, help_text="Once in a team. Empty: the name of its jobs.")
    schedule = forms.CharField(
        max_length=100,
        help_text="Minute, hour, day, month and weekday: 0 3 * * * is each day at 03:00, 0 9 * * MON-FRI each working "
        "day at 09:00.",
    )
    zone = forms.CharField(max_length=50, label="Time zone", initial="UTC", help_text="As Europe/Berlin.")
    concurrency = forms.ChoiceField(
        choices=RecurringJob.Concurrency.choices, label="While the run before is unfinished", initial="forbid"
    )
    missed = forms.ChoiceField(choices=RecurringJob.Missed.choices, label="After a downtime", initial="skip")
    spec = forms.CharField(
        label="The job as YAML",
        widget=forms.Textarea(attrs={"rows": 14, "spellcheck": "false", "class": "code"}),
        help_text="As of a job, without after, begin_time and deadline.",
    )

    def columns(self) -> dict[str, Any]:
        """Columns of the recurring job; raises `InvalidSpec` if the YAML cannot be read."""
        given = {name: value for name, value in self.cleaned_data.items() if value}
        RecurringJob._meta.get_field("zone").run_validators(given["zone"])
        return {**given, "spec": parsed_yaml(given["spec"])}

    def show(self, faults: Sequence[Fault]) -> None:
        """Show each fault at its field, those of the spec with their place."""
        for fault in faults:
            first, _, rest = fault["pointer"].removeprefix("/").partition("/")
            field = first if first in self.fields else None if not first else "spec"
            self.add_error(field, f"{rest}: {fault['detail']}" if rest else fault["detail"])


@login_required
@require_safe
def recurring_jobs(request: SignedInRequest) -> HttpResponse:
    seen = RecurringJob.objects.visible_to(request.user).select_related("team", "owner")
    context = paginate(request, seen, ByName)
    runs = last_runs(context["rows"], SHOWN_IN_LIST)
    context["listed"] = [(one, runs.get(one.pk, [])) for one in context["rows"]]
    return render(request, "pages/recurring_jobs.html", context)


@login_required
@require_safe
def recurring_job(request: SignedInRequest, pk: int) -> HttpResponse:
    found = _seen(request, pk)
    context = {
        "recurring": found,
        "runs": with_states(found.runs.all()[:SHOWN]),
        "yaml": write_yaml({"team": found.team.name, **found.spec}),
    }
    return render(request, "pages/recurring_job.html", context)


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def new_recurring_job(request: SignedInRequest) -> HttpResponse:
    """Form for a recurring job; with `job` in the address it begins with the spec of that job."""
    if request.method != "POST":
        spec = _spec_to_repeat(request)
        return _form(request, RecurringJobForm(initial={"spec": write_yaml(spec), "name": spec.get("name", "")}))

    def add(form: RecurringJobForm) -> RecurringJob:
        recurring = admitted_recurring_job(form.columns(), owner=request.user, now=timezone.now())
        add_recurring_job(recurring)
        return recurring

    return _entered(request, add, "It is submitted at the times of its schedule.")


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def change(request: SignedInRequest, pk: int) -> HttpResponse:
    """The form with the present state. A spec that stays as it is leaves the owner, too."""
    found = _seen(request, pk)
    shown = {"team": found.team.name, **found.spec}
    if request.method != "POST":
        columns = {name: getattr(found, name) for name in RecurringJobForm.base_fields if name != "spec"}
        return _form(request, RecurringJobForm(initial=columns | {"spec": write_yaml(shown)}), found)

    def save(form: RecurringJobForm) -> RecurringJob:
        columns = form.columns()
        if columns["spec"] == shown:
            del columns["spec"]
        change_recurring_job(found, columns, actor=request.user, now=timezone.now())
        return found

    return _entered(request, save, "It is changed.", found)


def _pause(request: SignedInRequest, found: RecurringJob) -> str:
    pause_recurring_job(found, actor=request.user, now=timezone.now())
    return f"{found} is paused."


def _resume(request: SignedInRequest, found: RecurringJob) -> str:
    resume_recurring_job(found, actor=request.user, now=timezone.now())
    return f"{found} goes on with its next due time."


def _run(request: SignedInRequest, found: RecurringJob) -> str:
    now = timezone.now()
    job = run_now(found, admitted_run(found, now), actor=request.user, now=now)
    return f"{job} has been submitted."


def _delete(request: SignedInRequest, found: RecurringJob) -> str:
    name = str(found)
    delete_recurring_job(found, actor=request.user)
    return f"{name} is deleted. Its jobs stay."


VERBS: dict[str, Callable[[SignedInRequest, RecurringJob], str]] = {
    "pause": _pause,
    "resume": _resume,
    "run": _run,
    "delete": _delete,
}


@login_required
@require_POST
def act(request: SignedInRequest, pk: int, verb: str) -> HttpResponse:
    """Pause, resume, run or delete a recurring job."""
    if verb not in VERBS:
        raise Http404
    found = _seen(request, pk)
    try:
        messages.success(request, VERBS[verb](request, found))
    except DOMAIN_ERRORS as error:
        show_error(request, error)
    return redirect("recurring-job", pk) if found.pk else redirect("recurring-jobs")


def _seen(request: SignedInRequest, pk: int) -> RecurringJob:
    seen = RecurringJob.objects.visible_to(request.user).select_related("team__budget", "owner")
    return get_object_or_404(seen, pk=pk)


def _spec_to_repeat(request: SignedInRequest) -> Mapping[str, Any]:
    if not (job := request.GET.get("job")):
        return EXAMPLE
    try:
        return without_times(spec_seen(request, UUID(job)))
    except ValueError as error:
        raise Http404 from error


def _entered(
    request: SignedInRequest,
    enter: Callable[[RecurringJobForm], RecurringJob],
    done: str,
    changed: RecurringJob | None = None,
) -> HttpResponse:
    """The page of the recurring job that was entered, or the form with its faults."""
    form = RecurringJobForm(request.POST)
    if form.is_valid():
        try:
            entered = enter(form)
        except InvalidSpec as error:
            form.show(error.faults)
        except forms.ValidationError as error:
            form.add_error("zone", error)
        else:
            messages.success(request, f"{entered}: {done}")
            return redirect("recurring-job", entered.pk)
    return _form(request, form, changed)


def _form(request: SignedInRequest, form: RecurringJobForm, changed: RecurringJob | None = None) -> HttpResponse:
    return render(request, "pages/recurring_form.html", {"form": form, "changed": changed})
