"""A new job, by form or by YAML: two ways to write the same spec."""

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_http_methods

from cluster_app.models import Node
from jobs_app.errors import Fault, InvalidSpec
from jobs_app.forms import JobForm, fields_of
from jobs_app.models import Job
from jobs_app.spec import parse_yaml, spec_of, write_yaml
from jobs_app.submission import submit_job
from scheduler_app.views.visit import Visit

SAMPLE = {"name": "hello", "command": "python -m motley_client.sample --steps 500", "gpus": 1, "total_steps": 500}


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def new_job(request: Visit) -> HttpResponse:
    if request.method != "POST":
        return _fresh(request)
    if request.POST.get("mode") == "yaml":
        return _from_yaml(request, request.POST.get("yaml", ""))
    return _from_form(request)


def _fresh(request: Visit) -> HttpResponse:
    spec = _template(request)
    if request.GET.get("mode") == "yaml":
        return _as_yaml(request, write_yaml(spec))
    return _as_form(request, JobForm(initial=fields_of(spec), user=request.user))


def _template(request: Visit) -> dict[str, Any]:
    """The job to clone, or where GPUs are emulated a job that runs there."""
    if clone := request.GET.get("clone"):
        try:
            job = get_object_or_404(Job.objects.visible_to(request.user).select_related("team"), pk=UUID(clone))
        except ValueError as error:
            raise Http404 from error
        return {name: value for name, value in spec_of(job).items() if name != "after"}
    team = request.user.teams.values_list("name", flat=True).first()
    first = {"team": team} if team else {}
    return first | (SAMPLE if Node.objects.filter(emulated=True).exists() else {"gpus": 1})


def _from_form(request: Visit) -> HttpResponse:
    form = JobForm(request.POST, user=request.user)
    try:
        spec = form.written() if form.is_valid() else None
        if spec is None:
            return _as_form(request, form)
        if request.POST.get("do") == "yaml":
            return _as_yaml(request, write_yaml(spec))
        return _submit(request, spec)
    except InvalidSpec as error:
        form.show(error.faults)
        return _as_form(request, form)


def _from_yaml(request: Visit, text: str) -> HttpResponse:
    try:
        spec = parse_yaml(text)
        if not isinstance(spec, dict):
            raise InvalidSpec.at("", "not_a_map", "Write one field per line: name: hello, gpus: 1, command: …")
        if request.POST.get("do") == "form":
            return _as_form(request, JobForm(initial=fields_of(spec), user=request.user))
        return _submit(request, spec)
    except InvalidSpec as error:
        return _as_yaml(request, text, faults=error.faults)


def _submit(request: Visit, spec: dict[str, Any]) -> HttpResponse:
    job = submit_job(spec, owner=request.user)
    messages.success(request, f"{job.name} is in the queue.")
    return redirect("jobs") if job.array_id else redirect("job", job.pk)


def _as_form(request: Visit, form: JobForm) -> HttpResponse:
    return render(request, "scheduler_app/new_job.html", {"form": form, "mode": "form"})


def _as_yaml(request: Visit, text: str, *, faults: Iterable[Fault] = ()) -> HttpResponse:
    context = {"yaml": text, "faults": faults, "mode": "yaml"}
    return render(request, "scheduler_app/new_job.html", context)
