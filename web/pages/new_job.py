"""New-job page: form and YAML of one job spec, kept in sync, with its dry run."""

from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.files.uploadedfile import UploadedFile
from django.http import Http404, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.template.loader import render_to_string
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.views.decorators.http import require_http_methods, require_POST

from accounting_app.fairness.budgets import with_budget_notes
from cluster_app.models import Node
from connections_app.checkpoints.copying import ALL, begun_with, choose, copied
from connections_app.errors import CheckpointNotCopied, TooManyUploads
from insight_app.explain.dry_run import dry_run
from insight_app.explain.plan_forecast import forecast_plan
from jobs_app.code.packing import store_files
from jobs_app.errors import FilesDeleted, InvalidSpec
from jobs_app.forms import TIMES, JobForm, field_of, fields_of
from jobs_app.job_archive import archived_job
from jobs_app.models import Job, Team
from jobs_app.recipes.usage import cards_of
from jobs_app.submission.admission import Admitted
from jobs_app.submission.conversion import parse_yaml, spec_of, write_yaml
from jobs_app.submission.larger_requests import read_larger_requests
from jobs_app.submission.needs_by_name import with_ids
from jobs_app.submission.submit import admitted, cloned_spec, enter
from web.pages.base import SignedInRequest
from web.pages.cost_chart import cost_figure
from web.pages.job_rows import read_free_gpus, read_gpu_colours
from web.pages.job_templates import EMULATED, JOB_TEMPLATES
from web.rest.errors import Fault

Spec = dict[str, Any]
ALWAYS_SHOWN = frozenset({"name", "team", "command", "gpus", "gpu_types", "total_steps", "time_limit"})
"""Fields of the form that are not folded."""


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def new_job(request: SignedInRequest) -> HttpResponse:
    if request.method != "POST":
        return _fresh(request)
    if request.POST.get("mode") == "yaml":
        return _from_yaml(request, request.POST.get("yaml", ""))
    return _from_form(request)


@login_required
@require_POST
def check_job(request: SignedInRequest) -> JsonResponse:
    """JSON for the script while the user types: the other representation, faults, plan and its note. Writes nothing."""
    try:
        spec, other = _read(request)
    except InvalidSpec as error:
        return JsonResponse(_faults(error.faults))
    try:
        plan = dry_run(with_ids(spec, request.user), owner=request.user)
    except InvalidSpec as error:
        return JsonResponse(other | _faults(error.faults))
    return JsonResponse(other | _faults(()) | {"plan": _shown(request, plan), "note": plan["note"]})


@login_required
@require_POST
def forecast_job(request: SignedInRequest) -> JsonResponse:
    """JSON for the script when the user has stopped typing: when the job would start and end. Writes nothing."""
    try:
        spec = with_ids(_read(request)[0], request.user)
        asked = admitted(spec, request.user, administrator=request.user.is_staff)
    except InvalidSpec:
        return JsonResponse({"forecast": ""})  # the check names the faults
    found = forecast_plan(asked, request.user, timezone.now())
    return JsonResponse({"forecast": render_to_string("pages/_plan_forecast.html", {"found": found}, request)})


def _read(request: SignedInRequest) -> tuple[Spec, dict[str, Any]]:
    """The spec as entered on one side, and the content of the other side."""
    if request.POST.get("mode") == "yaml":
        spec = parsed_yaml(request.POST.get("yaml", ""))
        return spec, {"fields": JobForm(initial=fields_of(spec), user=request.user).initial}
    form = JobForm(request.POST, user=request.user)
    form.is_valid()
    if form.errors:
        raise InvalidSpec(
            Fault(pointer=f"/{name}", code="invalid", detail=" ".join(map(str, e))) for name, e in form.errors.items()
        )
    spec = form.written()
    return spec, {"yaml": write_yaml(spec)}


def _shown(request: SignedInRequest, plan: Mapping[str, Any]) -> str:
    """The plan as HTML, with the chart of its costs and times."""
    currency = settings.MOTLEY_CURRENCY
    figure = cost_figure(plan["cost_and_time"], read_gpu_colours(), currency=currency)
    context = {"plan": plan, "gpus_now": read_free_gpus(), "figure": figure, "currency": currency}
    return render_to_string("pages/_plan.html", context, request)


def _faults(faults: Iterable[Fault]) -> dict[str, Any]:
    """Of the whole, and by field of the form."""
    listed = list(faults)
    names = list(JobForm.base_fields)
    by_field: dict[str, str] = {}
    for fault in listed:
        name = field_of(fault["pointer"])
        by_field.setdefault(name if name in names else "more", fault["detail"])
    return {"faults": [dict(fault) for fault in listed], "by_field": by_field}


def _fresh(request: SignedInRequest) -> HttpResponse:
    spec = _template(request)
    mode = "yaml" if request.GET.get("mode") == "yaml" else "form"
    return _page(request, JobForm(initial=fields_of(spec), user=request.user), yaml=write_yaml(spec), mode=mode)


def _template(request: SignedInRequest) -> Spec:
    """Spec to start from: of the job to clone, the selected template, or a sample job on emulated GPUs."""
    if clone := request.GET.get("clone"):
        return _clone(request, id_in(clone))
    team = Team.objects.default_of(request.user) or (Team.objects.current().first() if request.user.is_staff else None)
    first = {"team": team.name} if team else {}
    if (name := request.GET.get("template")) in JOB_TEMPLATES:
        return first | JOB_TEMPLATES[name].fresh
    return first | (EMULATED.spec if Node.objects.filter(emulated=True).exists() else {"gpus": 1})


def _clone(request: SignedInRequest, pk: UUID) -> Spec:
    """Spec of the job; with `larger` in the address as one of the larger requests that its page offers."""
    spec, field = spec_seen(request, pk), request.GET.get("larger")
    if not field:
        return dict(cloned_spec(spec))
    job = get_object_or_404(Job.objects.visible_to(request.user).select_related("team", "code"), pk=pk)
    changes = {one.field: one.value for one in read_larger_requests(job)}
    if field not in changes:
        raise Http404
    return dict(cloned_spec(spec, {field: changes[field]}))


def spec_seen(request: SignedInRequest, pk: UUID) -> Mapping[str, Any]:
    """Spec of a job that the user may see, be it in the archive."""
    if job := Job.objects.visible_to(request.user).select_related("team", "code").filter(pk=pk).first():
        return spec_of(job)
    if archived := archived_job(pk, request.user):
        return dict(archived.whole["spec"])
    raise Http404


def _from_form(request: SignedInRequest) -> HttpResponse:
    form = JobForm(request.POST, user=request.user)
    written = request.POST.get("yaml", "")
    try:
        spec = form.written() if form.is_valid() else None
        if spec is None:
            return _page(request, form, yaml=written)
        if request.POST.get("do") == "yaml":
            return _page(request, form, yaml=write_yaml(spec), mode="yaml")
        written = write_yaml(spec)  # as submitted: that of the script is of a moment before
        return _submit(request, spec)
    except InvalidSpec as error:
        form.show(error.faults)
        return _page(request, form, yaml=written)


def _from_yaml(request: SignedInRequest, text: str) -> HttpResponse:
    spec: Spec = {}
    try:
        spec = parsed_yaml(text)
        if request.POST.get("do") == "form":
            return _page(request, JobForm(initial=fields_of(spec), user=request.user), yaml=text)
        return _submit(request, spec)
    except InvalidSpec as error:
        form = JobForm(initial=fields_of(spec), user=request.user)
        return _page(request, form, yaml=text, mode="yaml", faults=error.faults)


def parsed_yaml(text: str) -> Spec:
    spec = parse_yaml(text)
    if not isinstance(spec, Mapping):
        raise InvalidSpec.at("", "not_a_map", "Write one field per line, e.g. gpus: 1")
    return {name: _in_utc(value) if name in TIMES else value for name, value in spec.items()}


def _in_utc(value: Any) -> Any:
    """A time of the YAML without a zone is of UTC, as in a job file and over REST."""
    try:
        at = parse_datetime(value) if isinstance(value, str) else None
    except ValueError:
        return value
    return f"{value}Z" if at and timezone.is_naive(at) else value


def _submit(request: SignedInRequest, spec: Spec) -> HttpResponse:
    if files := uploaded_files(request):
        spec = spec | {"code": _stored(request, spec, files)}
    asked = admitted(with_ids(spec, request.user), request.user, administrator=request.user.is_staff)
    (asked,) = with_budget_notes([asked], timezone.now())
    job = _entered(request, asked)
    messages.success(request, f"{job.name} has been submitted. {asked.note}".strip())
    return redirect("jobs") if job.array_id else redirect("job", job.pk)


def _entered(request: SignedInRequest, asked: Admitted) -> Job:
    """Submit the job, beginning with the checkpoint that the form names, if it does."""
    if not (name := request.POST.get("checkpoint", "")):
        return enter(asked)
    source = get_object_or_404(Job.objects.visible_to(request.user), pk=id_in(request.POST.get("source", "")))
    try:
        chosen = choose(source, name)
        asked = begun_with(chosen, asked)
        with copied(chosen, asked.id):
            return enter(asked)
    except (CheckpointNotCopied, FilesDeleted, TooManyUploads) as error:
        raise InvalidSpec.at("", error.code, str(error)) from error


def id_in(text: str) -> UUID:
    """The id of a job in an address or form; raises `Http404`."""
    try:
        return UUID(text)
    except ValueError as error:
        raise Http404 from error


def uploaded_files(request: SignedInRequest) -> "dict[str, UploadedFile[Any]]":
    """Uploaded files by their paths: those of a folder as the script told them, without the name of the folder."""
    files = {file.name or "": file for file in request.FILES.getlist("files")}
    folder, paths = request.FILES.getlist("folder"), request.POST.get("paths", "").split("\n")
    if len(paths) != len(folder):  # without the script only their names are known
        paths = [file.name or "" for file in folder]
    return files | {path.strip().partition("/")[2] or path.strip(): f for path, f in zip(paths, folder, strict=True)}


def _stored(request: SignedInRequest, spec: Spec, files: "Mapping[str, UploadedFile[Any]]") -> str:
    """The digest of the files as an archive of the job's team."""
    teams = Team.objects.current() if request.user.is_staff else Team.objects.current().filter(members=request.user)
    team = teams.filter(name=spec["team"]).first() if spec.get("team") else Team.objects.default_of(request.user)
    if team is None:
        raise InvalidSpec.at("/team", "no_such_team", "Choose a team: the files are stored for it.")
    return store_files(files, team=team, user=request.user).digest


def _page(
    request: SignedInRequest, form: JobForm, *, yaml: str, mode: str = "form", faults: Iterable[Fault] = ()
) -> HttpResponse:
    context = {
        "form": form,
        "yaml": yaml,
        "mode": mode,
        "faults": faults,
        "files_lost": bool(request.FILES),
        "advanced_open": _uses_advanced(form),
        "cards": cards_of(request.user),
        "job_templates": JOB_TEMPLATES,
        "chosen": request.GET.get("template", ""),
        "begins_with": _begins_with(request),
        "starts_from_example": request.method == "GET" and "clone" not in request.GET,
    }
    return render(request, "pages/new_job.html", context)


def _begins_with(request: SignedInRequest) -> dict[str, Any] | None:
    """The job and the name of the checkpoint with which the new job is to begin."""
    sent = request.POST if request.method == "POST" else request.GET
    name, source = sent.get("checkpoint", ""), sent.get("source") or sent.get("clone", "")
    if not name:
        return None
    job = get_object_or_404(Job.objects.visible_to(request.user), pk=id_in(source))
    return {"job": job, "name": name, "all": name == ALL}


def _uses_advanced(form: JobForm) -> bool:
    """Whether a folded field is filled in or wrong."""
    return any(field.value() or field.errors for field in form if field.name not in ALWAYS_SHOWN)
