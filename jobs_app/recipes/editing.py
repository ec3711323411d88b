"""Commands of users on recipes: add, change (a new version), delete, and the job that one makes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import F

from audit_app.models import Action
from audit_app.services import note
from jobs_app.errors import Conflict, InvalidSpec, NotAllowed
from jobs_app.models import Job, Recipe, RecipeVersion, Team
from jobs_app.recipes.parameters import Parameter, declaration_faults, values_for, with_values
from jobs_app.submission.admission import Admitted
from jobs_app.submission.spec import JobSpec
from jobs_app.submission.submit import admitted, enter
from jobs_app.teams import may_manage
from web.rest.choices import guesses_of, not_one_of, shortened
from web.rest.errors import Fault, escaped

MOST_VERSIONS = 100
"""Kept of one recipe; a new one deletes the oldest."""
OF_ONE_JOB = ("after", "begin_time", "deadline")
"""Fields that a recipe cannot have: moments, and jobs, of one submission."""
MERGED = ("env", "tags")
"""Fields of which changes add names, and do not replace the whole."""

Columns = Mapping[str, Any]
"""As they were sent: `name`, `description`, `editors`, `parameters` (rows), `spec`; those not given are missing."""


def may_edit(user: User, recipe: Recipe) -> bool:
    """Whether the user may change the recipe: members of its team, or only its leads and administrators."""
    if recipe.editors == Recipe.Editors.LEADS:
        return may_manage(user, recipe.team)
    return user.is_staff or recipe.team.members.filter(pk=user.pk).exists()


def admitted_recipe(asked: Columns, *, author: User, now: datetime) -> tuple[Recipe, RecipeVersion]:
    """A recipe of which parameters and spec are valid, unsaved; raises `InvalidSpec` with every fault."""
    job = admitted_spec(asked["spec"], asked.get("parameters", []), author)
    told = {name: asked[name] for name in ("name", "description", "editors") if name in asked}
    recipe = Recipe(**told, team=job.team, created_at=now, changed_at=now)
    recipe.name = recipe.name or job.columns["name"]
    _refuse_editing_by_leads_alone(recipe, author)
    return recipe, _version(recipe, job, asked, author=author, now=now)


@transaction.atomic
def add_recipe(recipe: Recipe, version: RecipeVersion) -> None:
    """Insert one that was admitted; under the lock of its team its number and its name are checked."""
    _lock_names(recipe.team_id)
    most = settings.MOTLEY_RECIPES_PER_TEAM
    if Recipe.objects.filter(team=recipe.team).count() >= most:
        text = f"Team {recipe.team} has {most:,} recipes, which is the limit: delete one first."
        raise InvalidSpec.at("", "too_many", text)
    _refuse_taken_name(recipe)
    recipe.save()
    version.recipe = recipe
    version.save()
    _note(Action.RECIPE_ADD, recipe, version.author)


def change_recipe(
    recipe: Recipe, asked: Columns, *, actor: User, now: datetime, check: Callable[[], None] = lambda: None
) -> None:
    """Change the given columns; `check` may refuse while the row is locked. Other spec or parameters: a new version."""
    _refuse_others(actor, recipe)
    latest = recipe.versions.get(number=recipe.version)
    spec, parameters = asked.get("spec", latest.spec), asked.get("parameters", latest.parameters)
    is_new = (stored_spec(_object(spec)), parameters) != (latest.spec, latest.parameters)
    job = admitted_spec(spec, parameters, actor, recipe.team) if is_new else None
    with transaction.atomic():
        if "name" in asked:
            _lock_names(recipe.team_id)
        locked = Recipe.objects.select_for_update(of=("self",)).select_related("team").get(pk=recipe.pk)
        check()
        _refuse_others(actor, locked)
        told = ("name", "description", "editors")
        changed = [name for name in told if name in asked and getattr(locked, name) != asked[name]]
        for name in changed:
            setattr(locked, name, asked[name])
        _refuse_editing_by_leads_alone(locked, actor)
        if job is not None and locked.version != recipe.version:
            raise Conflict(
                f"Somebody saved version {locked.version} in the meantime: load it, and change that version."
            )
        if job is not None:
            locked.version += 1
            changed.append(f"version {locked.version}")
            whole = {"spec": spec, "parameters": parameters}
            _version(locked, job, whole, author=actor, now=now).save()
            locked.versions.filter(number__lte=locked.version - MOST_VERSIONS).delete()
        if changed:
            _refuse_taken_name(locked)
            locked.changed_at = now
            locked.save(update_fields=[*told, "version", "changed_at"])
            _note(Action.RECIPE_CHANGE, locked, actor, f"changed {', '.join(changed)}")


@transaction.atomic
def delete_recipe(recipe: Recipe, *, actor: User) -> None:
    """Delete it with its versions; its jobs stay."""
    _refuse_others(actor, recipe)
    _note(Action.RECIPE_DELETE, recipe, actor)
    recipe.delete()


def admitted_job(
    recipe: Recipe,
    owner: User,
    *,
    values: Mapping[str, Any],
    changes: Mapping[str, Any],
    number: int | None = None,
    administrator: bool = False,
) -> Admitted:
    """Admit the job of a version, by default of the latest; `changes` are fields of a job in place of the recipe's."""
    version = version_of(recipe, number)
    parameters = [Parameter.stored(row) for row in version.parameters]
    filled, faults = values_for(parameters, values)
    faults += _unknown_fields(changes, parameters)
    if faults:
        raise InvalidSpec(faults)
    job = admitted(_changed(with_values(version.spec, filled), recipe, changes), owner, administrator=administrator)
    return replace(job, columns=job.columns | {"recipe_id": recipe.pk, "recipe_version": version.number})


def version_of(recipe: Recipe, number: int | None) -> RecipeVersion:
    """The version of this number; None: the latest."""
    found = recipe.versions.filter(number=recipe.version if number is None else number).first()
    if found is None:
        known = recipe.versions.order_by("number").values_list("number", flat=True)
        raise InvalidSpec.at("/version", "no_such_version", f"There is no such version: {not_one_of(number, known)}")
    return found


@transaction.atomic(savepoint=False)
def submit_admitted(recipe: Recipe, job: Admitted) -> Job:
    """Insert the job, or the array, and count the submission."""
    Recipe.objects.filter(pk=recipe.pk).update(submissions=F("submissions") + 1)
    return enter(job)


def admitted_spec(
    spec: Any, parameters: Sequence[Mapping[str, Any]], author: User, team: Team | None = None
) -> Admitted:
    """Admit the spec with the default values, and samples where there is none; faults are below `/spec`."""
    spec = _object(spec)
    declared = [Parameter.stored(row) for row in parameters]
    faults = [*_moments(spec), *declaration_faults(spec, declared)]
    if team is not None and spec.get("team", team.name) != team.name:
        faults.append(Fault(pointer="/spec/team", code="immutable", detail=f"The recipe stays in its team, {team}."))
    if faults:
        raise InvalidSpec(faults)
    filled = with_values(spec, {one.name: one.sample for one in declared})
    try:
        return admitted(filled | ({"team": team.name} if team else {}), author)
    except InvalidSpec as error:
        raise InvalidSpec(
            Fault(pointer=f"/spec{one['pointer']}", code=one["code"], detail=one["detail"]) for one in error.faults
        ) from None


def stored_spec(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The spec as it was written, without its team, which may be renamed, and without anchors of YAML."""
    return {name: value for name, value in spec.items() if name != "team" and not name.startswith("x-")}


def _object(spec: Any) -> Mapping[str, Any]:
    if not isinstance(spec, Mapping):
        raise InvalidSpec.at("/spec", "invalid", "Write the fields of a job, e.g. name, command and gpus.")
    return spec


def without_moments(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The spec of a job, without what a recipe cannot have."""
    return {name: value for name, value in spec.items() if name not in OF_ONE_JOB}


def _changed(spec: Mapping[str, Any], recipe: Recipe, changes: Mapping[str, Any]) -> dict[str, Any]:
    if changes.get("team", recipe.team.name) != recipe.team.name:
        raise InvalidSpec.at("/team", "immutable", f"Jobs of this recipe are of its team, {recipe.team}.")
    sizes = {"gpus", "replicas", "gpus_per_replica"}
    kept = {name: value for name, value in spec.items() if not (name in sizes and changes.keys() & sizes)}
    both = {
        name: kept[name] | changes[name]
        for name in MERGED
        if isinstance(kept.get(name), dict) and isinstance(changes.get(name), dict)
    }
    return {**kept, **changes, **both, "team": recipe.team.name}


def _unknown_fields(changes: Mapping[str, Any], parameters: Sequence[Parameter]) -> list[Fault]:
    """Faults of changes that are no field of a job: a misspelt parameter is one, as `--set` may mean either."""
    fields, names = JobSpec().fields, [one.name for one in parameters]
    listed = f"The parameters are: {', '.join(names)}." if names else "The recipe has no parameters."
    guesses = guesses_of((name for name in changes if name not in fields), [*names, *fields])
    return [
        Fault(
            pointer=f"/changes/{escaped(name[:100])}",
            code="unknown",
            detail=f"{shortened(name)} is no parameter, and no field of a job.{guesses.get(name, '')} {listed}",
        )
        for name in changes
        if name not in fields
    ]


def _version(recipe: Recipe, job: Admitted, asked: Columns, *, author: User, now: datetime) -> RecipeVersion:
    return RecipeVersion(
        recipe=recipe,
        number=recipe.version,
        spec=stored_spec(asked["spec"]),
        parameters=list(asked.get("parameters", ())),
        code=job.code,
        author=author,
        created_at=now,
    )


def _moments(spec: Mapping[str, Any]) -> list[Fault]:
    text = "It belongs to one submission: leave it out, and give it when you submit the recipe."
    return [Fault(pointer=f"/spec/{name}", code="of_one_job", detail=text) for name in OF_ONE_JOB if spec.get(name)]


def _refuse_others(user: User, recipe: Recipe) -> None:
    if not may_edit(user, recipe):
        who = "leads of the team" if recipe.editors == Recipe.Editors.LEADS else "members of the team"
        raise NotAllowed(f"Only {who} {recipe.team} and administrators change this recipe. Add one of your own.")


def _refuse_editing_by_leads_alone(recipe: Recipe, actor: User) -> None:
    """Nobody may shut themselves, and others, out."""
    if recipe.editors == Recipe.Editors.LEADS and not may_manage(actor, recipe.team):
        text = f"Only leads of {recipe.team} and administrators may let leads alone change a recipe: write members."
        raise InvalidSpec.at("/editors", "not_a_lead", text)


def _lock_names(team_id: int) -> None:
    """Let nobody else add or rename a recipe of the team before the transaction ends; before a recipe is locked."""
    Team.objects.select_for_update(no_key=True).get(pk=team_id)


def _refuse_taken_name(recipe: Recipe) -> None:
    if Recipe.objects.filter(team=recipe.team, name=recipe.name).exclude(pk=recipe.pk).exists():
        text = f"Team {recipe.team} has a recipe {recipe.name!r} already: give another name, or change that one."
        raise InvalidSpec.at("/name", "name_taken", text)


def _note(action: Action, recipe: Recipe, actor: User | None, message: str = "") -> None:
    note(action, actor=actor, target=recipe.name, target_id=recipe.pk, message=message)
