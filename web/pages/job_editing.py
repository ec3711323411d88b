"""Edit page of a job: what may be changed in its state, by the rules of PATCH over REST."""

from collections.abc import Mapping
from functools import partial
from typing import Any
from uuid import UUID

from django import forms
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import User
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_http_methods

from jobs_app.errors import InvalidSpec, JobsError
from jobs_app.forms import (
    field_of,
    fields_of,
    gpus_of,
    lines_of,
    local_time_of,
    number_or_text,
    pairs_of,
    values_and_faults,
)
from jobs_app.lifecycle.commands import DESCRIPTIVE, change_job
from jobs_app.models import Job
from jobs_app.submission.changing import PROGRAM, REQUEST, read_change
from jobs_app.submission.conversion import spec_of
from web.pages.base import SignedInRequest, show_error
from web.rest.errors import Fault

NUMBERS = ("weight", "retries", "total_steps", "cpus_per_gpu")
NULLABLE = ("time_limit", "idle_limit", "begin_time", "deadline", "total_steps")
SIZE = ("gpus", "gpus_max")
OF_QUEUED = {*REQUEST, "gpus_max", "begin_time"}
AT = forms.DateTimeInput(attrs={"type": "datetime-local"})
ROWS = {"rows": 3, "spellcheck": "false"}


class JobEditForm(forms.Form):
    """Fields of a job that may be changed, as texts; validation is that of a change over REST."""

    name = forms.CharField(required=False, max_length=100)
    tags = forms.CharField(required=False, widget=forms.Textarea(attrs=ROWS), help_text="One a line: project=imagenet.")
    weight = forms.CharField(required=False, help_text="Within the team; 1 is usual.")
    retries = forms.CharField(required=False, help_text="After failures; preemptions do not count.")
    time_limit = forms.CharField(required=False, help_text="Of running time, e.g. 48h, 90m or 2:00:00. Empty: none.")
    idle_limit = forms.CharField(
        required=False, help_text="Without input or output of a session, e.g. 1h. Empty: none."
    )
    deadline = forms.CharField(required=False, widget=AT)
    begin_time = forms.CharField(required=False, widget=AT, label="Not before")
    command = forms.CharField(required=False, widget=forms.Textarea(attrs=ROWS), help_text="Run by /bin/sh.")
    env = forms.CharField(
        required=False, widget=forms.Textarea(attrs=ROWS), label="Environment", help_text="One a line: LR=0.1."
    )
    gpus = forms.CharField(required=False, label="GPUs")
    gpus_max = forms.CharField(required=False, label="Maximum", help_text="For an elastic job.")
    gpu_types = forms.CharField(required=False, label="GPU types", help_text="e.g. a100, v100. Empty: any.")
    gpu_memory = forms.CharField(required=False, label="GPU memory", help_text="At least, e.g. 16GiB.")
    cpus_per_gpu = forms.CharField(required=False, label="CPUs per GPU")
    memory_per_gpu = forms.CharField(required=False, label="Memory per GPU", help_text="e.g. 32GiB.")
    total_steps = forms.CharField(required=False, label="Total steps")

    def __init__(self, data: Mapping[str, Any] | None, *, job: Job, user: User) -> None:
        super().__init__(data, initial=values_of(job))
        for name in set(self.fields) - changeable(job, user):
            del self.fields[name]

    def change(self) -> tuple[dict[str, Any], list[Fault]]:
        """The change as over REST: only of fields that are not as they were shown; and faults of those not readable."""
        changed = [name for name in self.changed_data if name not in SIZE]
        asked, faults = values_and_faults({name: partial(self._value, name) for name in changed})
        if set(SIZE) & {*self.changed_data}:
            asked["gpus"] = gpus_of(self.cleaned_data["gpus"], self.cleaned_data["gpus_max"])
        return asked, faults

    def _value(self, name: str) -> Any:
        text: str = self.cleaned_data[name].strip()
        if name in ("tags", "env"):
            return pairs_of(text, name)
        if name == "gpu_types":
            return [part.strip() for part in text.split(",") if part.strip()]
        if not text and name in NULLABLE:
            return None
        if name == "cpus_per_gpu":
            return number_or_text(text or "0")
        return (
            number_or_text(text) if name in NUMBERS else text or "0" if name.endswith(("memory", "_per_gpu")) else text
        )


def values_of(job: Job) -> dict[str, Any]:
    """Values of the form as the job has them, as texts: another type would be a change."""
    spec = spec_of(job)
    plain = fields_of(spec)
    types = ", ".join(job.gpu_types)
    own = {"tags": lines_of(job.tags), "env": lines_of(job.env), "gpu_types": types, "weight": f"{job.weight:g}"}
    times = {name: local_time_of(spec.get(name, "")) for name in ("begin_time", "deadline")}
    limits = {"retries": job.retries, "idle_limit": spec.get("idle_limit", "")}
    size = {"gpus": job.gpus_min, "gpus_max": job.gpus_max if job.gpus_max > job.gpus_min else ""}
    values = plain | own | times | limits | size
    return {name: "" if value is None else str(value) for name, value in values.items()}


def changeable(job: Job, user: User) -> set[str]:
    """Fields that this person may change in the job's state."""
    every = set(JobEditForm.base_fields)
    if job.is_final:
        return every & DESCRIPTIVE
    if job.state != Job.State.QUEUED:
        return every - OF_QUEUED
    if user.pk == job.owner_id:
        return every
    if user.is_staff:
        return every - PROGRAM if job.secrets else every
    return every - {*REQUEST, "gpus_max"}


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def edit(request: SignedInRequest, pk: UUID) -> HttpResponse:
    """Form with what may be changed; with a POST the change."""
    visible = Job.objects.visible_to(request.user).select_related("team", "owner", "code")
    job = get_object_or_404(visible.prefetch_related("needs"), pk=pk)
    form = JobEditForm(request.POST if request.method == "POST" else None, job=job, user=request.user)
    if request.method == "POST" and form.is_valid() and _changed(request, job, form):
        return redirect("job", pk)
    return render(request, "pages/job_edit.html", {"job": job, "form": form, "whose": job.owner})


def _read(job: Job, form: JobEditForm, user: User) -> dict[str, Any]:
    """Columns of the change; `InvalidSpec` with the faults of all fields."""
    change, faults = form.change()
    try:
        asked = read_change(job, change, actor=user, administrator=user.is_staff)
    except InvalidSpec as error:
        raise InvalidSpec([*faults, *error.faults]) from None
    if faults:
        raise InvalidSpec(faults)
    return asked


def _changed(request: SignedInRequest, job: Job, form: JobEditForm) -> bool:
    administrator = request.user.is_staff
    try:
        asked = _read(job, form, request.user)
        change_job(job, asked, actor=request.user, administrator=administrator)
    except InvalidSpec as error:
        for fault in error.faults:
            name = field_of(fault["pointer"])
            form.add_error(name if name in form.fields else None, fault["detail"])
        return False
    except JobsError as error:
        show_error(request, error)
        return False
    messages.success(request, f"{job} is changed." if asked else "Nothing was changed.")
    return True
