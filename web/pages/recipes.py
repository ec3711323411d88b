"""Pages of recipes: cards, one with the form by which a job is submitted, and the form to add or change one."""

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

from accounting_app.fairness.budgets import with_budget_notes
from jobs_app.errors import InvalidSpec
from jobs_app.models import Job, Recipe, RecipeVersion
from jobs_app.recipes.declaration import read_parameters, written_parameters
from jobs_app.recipes.editing import (
    add_recipe,
    admitted_job,
    admitted_recipe,
    change_recipe,
    delete_recipe,
    may_edit,
    submit_admitted,
    version_of,
    without_moments,
)
from jobs_app.recipes.parameters import Parameter
from jobs_app.recipes.usage import Card, cards, last_jobs
from jobs_app.submission.conversion import write_yaml
from jobs_app.submission.needs_by_name import with_ids
from web.pages.base import DOMAIN_ERRORS, SignedInRequest, paginate, show_error
from web.pages.new_job import parsed_yaml, spec_seen
from web.rest.errors import Fault
from web.rest.pagination import ByName

VERSIONS = 20
"""Versions on the page of a recipe."""
EXAMPLE = {
    "parameters": {"lr": 0.1},
    "name": "train",
    "command": "python train.py --lr ${{ lr }}",
    "gpus": 1,
}


class RecipeForm(forms.Form):
    """A recipe: its name and purpose, and the job file with parameters; checked as over REST."""

    name = forms.CharField(required=False, max_length=100, help_text="Once in a team. Empty: the name of its jobs.")
    description = forms.CharField(required=False, max_length=500, help_text="What it is for.")
    editors = forms.ChoiceField(choices=Recipe.Editors.choices, label="May be changed by", initial="members")
    spec = forms.CharField(
        label="The job as YAML, with its parameters",
        widget=forms.Textarea(attrs={"rows": 18, "spellcheck": "false", "class": "code"}),
        help_text="Where a parameter is, write ${{ name }}, without quotes around it; under parameters its default, or "
        "default, description, choices and type.",
    )

    def columns(self) -> dict[str, Any]:
        """Columns of the recipe; raises `InvalidSpec` if the YAML cannot be read."""
        spec = parsed_yaml(self.cleaned_data["spec"])
        told = {name: self.cleaned_data[name] for name in ("name", "description", "editors")}
        return {**told, "parameters": read_parameters(spec.pop("parameters", None) or {}), "spec": spec}

    def show(self, faults: Sequence[Fault]) -> None:
        """Show each fault at its field, those of the spec and of parameters with their place."""
        for fault in faults:
            first, _, rest = fault["pointer"].removeprefix("/").partition("/")
            field = first if first in self.fields else None if not first else "spec"
            place = rest if first == "spec" else fault["pointer"].removeprefix("/")
            self.add_error(field, f"{place}: {fault['detail']}" if field == "spec" and place else fault["detail"])


class ValuesForm(forms.Form):
    """A field for each parameter of a version, and one for other fields of the job."""

    changes = forms.CharField(
        required=False,
        label="Other fields of the job",
        widget=forms.Textarea(attrs={"rows": 4, "spellcheck": "false", "class": "code"}),
        help_text="As YAML, in place of the recipe's: gpus: 8. env and tags are added.",
    )

    def __init__(self, *args: Any, version: RecipeVersion, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.parameters = [Parameter.stored(row) for row in version.parameters]
        ordered = {_field_name(one.name): _field(one) for one in self.parameters}
        self.fields = ordered | self.fields

    def values(self) -> dict[str, Any]:
        """Values as they were written; one that was left empty is not given, and the default holds."""
        given = {one.name: self.cleaned_data.get(_field_name(one.name), "") for one in self.parameters}
        return {name: text for name, text in given.items() if text != ""}

    def other_fields(self) -> dict[str, Any]:
        return parsed_yaml(text) if (text := self.cleaned_data["changes"]).strip() else {}

    def show(self, faults: Sequence[Fault]) -> None:
        """Show each fault at its parameter, others at the other fields of the job."""
        for fault in faults:
            first, _, rest = fault["pointer"].removeprefix("/").partition("/")
            name = _field_name(rest) if first == "parameters" else ""
            if name in self.fields:
                self.add_error(name, fault["detail"])
            else:
                place = fault["pointer"].removeprefix("/")
                self.add_error("changes", f"{place}: {fault['detail']}" if place else fault["detail"])


def _field_name(parameter: str) -> str:
    return f"value-{parameter}"


def _field(one: Parameter) -> forms.Field:
    """A field that keeps what is written: the type is checked as over REST."""
    known: dict[str, Any] = {
        "label": one.name,
        "help_text": one.description,
        "required": one.default is None,
        "initial": _as_text(one.default),
    }
    values = (True, False) if one.type == "boolean" else one.choices
    if values:
        choose = [("", "choose")] if one.default is None else []
        return forms.ChoiceField(choices=[*choose, *((_as_text(value), _as_text(value)) for value in values)], **known)
    attributes = {"inputmode": "decimal"} if one.type in ("integer", "number") else {}
    return forms.CharField(widget=forms.TextInput(attrs=attributes), **known)


def _as_text(value: Any) -> str:
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


@login_required
@require_safe
def recipes(request: SignedInRequest) -> HttpResponse:
    context = paginate(request, Recipe.objects.visible_to(request.user).select_related("team"), ByName)
    return render(request, "pages/recipes.html", context | {"cards": cards(context["rows"])})


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def recipe(request: SignedInRequest, pk: int) -> HttpResponse:
    """A recipe with the form by which a job is submitted; `version` in the address is another than the latest."""
    found = _seen(request, pk)
    version = _version(found, request.GET.get("version"))
    if request.method == "POST":
        form = ValuesForm(request.POST, version=version)
        if form.is_valid():
            try:
                return _submitted(request, found, version, form)
            except InvalidSpec as error:
                form.show(error.faults)
    else:
        form = ValuesForm(version=version)
    context = {
        "card": Card(found, version, last_jobs([found]).get(found.pk)),
        "form": form,
        "may_edit": may_edit(request.user, found),
        "versions": found.versions.select_related("author")[:VERSIONS],
        "yaml": _file_of(found, version),
    }
    return render(request, "pages/recipe.html", context)


def _submitted(request: SignedInRequest, found: Recipe, version: RecipeVersion, form: ValuesForm) -> HttpResponse:
    asked = admitted_job(
        found,
        request.user,
        values=form.values(),
        changes=with_ids(form.other_fields(), request.user),
        number=version.number,
        administrator=request.user.is_staff,
    )
    (asked,) = with_budget_notes([asked], timezone.now())
    job: Job = submit_admitted(found, asked)
    messages.success(request, f"{job.name} has been submitted. {asked.note}".strip())
    return redirect("jobs") if job.array_id else redirect("job", job.pk)


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def new_recipe(request: SignedInRequest) -> HttpResponse:
    """Form for a recipe; with `job` in the address it begins with the spec of that job."""
    if request.method != "POST":
        spec = _spec_to_keep(request)
        return _form(request, RecipeForm(initial={"spec": write_yaml(spec), "name": spec.get("name", "")}))

    def add(form: RecipeForm) -> Recipe:
        made, version = admitted_recipe(form.columns(), author=request.user, now=timezone.now())
        add_recipe(made, version)
        return made

    return _entered(request, add, "It has a card on New job.")


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def change(request: SignedInRequest, pk: int) -> HttpResponse:
    found = _seen(request, pk)
    if request.method != "POST":
        told = {name: getattr(found, name) for name in ("name", "description", "editors")}
        return _form(request, RecipeForm(initial=told | {"spec": _file_of(found, version_of(found, None))}), found)

    def save(form: RecipeForm) -> Recipe:
        change_recipe(found, form.columns(), actor=request.user, now=timezone.now())
        found.refresh_from_db()
        return found

    return _entered(request, save, "It is changed.", found)


@login_required
@require_POST
def delete(request: SignedInRequest, pk: int) -> HttpResponse:
    found = _seen(request, pk)
    name = str(found)
    try:
        delete_recipe(found, actor=request.user)
    except DOMAIN_ERRORS as error:
        show_error(request, error)
        return redirect("recipe", pk)
    messages.success(request, f"{name} is deleted. Its jobs stay.")
    return redirect("recipes")


def _seen(request: SignedInRequest, pk: int) -> Recipe:
    return get_object_or_404(Recipe.objects.visible_to(request.user).select_related("team"), pk=pk)


def _version(found: Recipe, asked: str | None) -> RecipeVersion:
    try:
        return version_of(found, int(asked) if asked else None)
    except (ValueError, InvalidSpec) as error:
        raise Http404 from error


def _file_of(found: Recipe, version: RecipeVersion) -> str:
    """The recipe as the file by which it can be added."""
    parameters = written_parameters(version.parameters)
    return write_yaml(({"parameters": parameters} if parameters else {}) | {"team": found.team.name, **version.spec})


def _spec_to_keep(request: SignedInRequest) -> Mapping[str, Any]:
    if not (job := request.GET.get("job")):
        return EXAMPLE
    try:
        return without_moments(spec_seen(request, UUID(job)))
    except ValueError as error:
        raise Http404 from error


def _entered(
    request: SignedInRequest, enter: Callable[[RecipeForm], Recipe], done: str, changed: Recipe | None = None
) -> HttpResponse:
    """The page of the recipe that was entered, or the form with its faults."""
    form = RecipeForm(request.POST)
    if form.is_valid():
        try:
            entered = enter(form)
        except InvalidSpec as error:
            form.show(error.faults)
        except DOMAIN_ERRORS as error:
            form.add_error(None, str(error))
        else:
            messages.success(request, f"{entered}: {done}")
            return redirect("recipe", entered.pk)
    return _form(request, form, changed)


def _form(request: SignedInRequest, form: RecipeForm, changed: Recipe | None = None) -> HttpResponse:
    return render(request, "pages/recipe_form.html", {"form": form, "changed": changed})
