"""REST: recipes (`/recipes`) and their versions: add, list, show, change, delete, and submit a job by one."""

from functools import cached_property
from typing import Any

import django_filters
from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone
from drf_spectacular.utils import extend_schema, extend_schema_field, extend_schema_view
from rest_framework import serializers, status, viewsets
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from accounting_app.fairness.budgets import with_budget_notes
from insight_app.explain.dry_run import dry_run_of_admitted
from insight_app.explain.plan_forecast import forecast_plan
from jobs_app.models import Job, Recipe, RecipeVersion
from jobs_app.permissions import NotForJobs, caller, is_administrator
from jobs_app.recipes.declaration import MOST_PARAMETERS, TYPES, AnyValue, ParameterSpecs
from jobs_app.recipes.editing import (
    add_recipe,
    admitted_job,
    admitted_recipe,
    change_recipe,
    delete_recipe,
    submit_admitted,
)
from jobs_app.recipes.usage import LastJob, last_jobs, latest_versions
from jobs_app.serializers import JobInFull, in_full
from jobs_app.submission.enqueue import draft_spec, just_written
from jobs_app.submission.fields import PlainText
from jobs_app.submission.idempotency import IDEMPOTENCY_KEY, KeyedRequest
from web.api.jobs import PlanWithForecast, SubmitQuery
from web.rest.bodies import DictOf, Strict, body_of
from web.rest.choices import Choice
from web.rest.etags import IF_MATCH, IF_NONE_MATCH, etag_of, refuse_stale
from web.rest.pagination import ByNumber, OldestFirst
from web.rest.parsers import LARGEST_SPEC_BYTES
from web.rest.query import query_of
from web.rest.representation import FIELDS, ShowMany, fields_wanted, single


@extend_schema_field({"type": "object", "additionalProperties": True})
class SpecWithPlaces(serializers.JSONField):
    """Spec of a job with `${{ name }}` where the value of a parameter belongs; its admission checks it."""


class RecipeChange(Strict):
    """Fields of a recipe to change. Another `spec` or other `parameters` are a new version."""

    name = PlainText(max_length=100, required=False, help_text="Once per team. Default: the name of its jobs.")
    description = PlainText(max_length=500, required=False, allow_blank=True)
    editors = Choice(Recipe.Editors.choices, required=False, help_text="Who may change it. Leads alone may say leads.")
    parameters = ParameterSpecs(required=False)
    spec = SpecWithPlaces(required=False)


class RecipeSpec(RecipeChange):
    """A recipe to add; its team is that of the spec."""

    spec = SpecWithPlaces(
        help_text="Of a job, without `after`, `begin_time` and `deadline`, with `${{ name }}` where a parameter is."
    )


class RecipeSubmission(Strict):
    """Values of a recipe's parameters, and fields of the job in place of the recipe's."""

    version = serializers.IntegerField(required=False, min_value=1, max_value=2**31 - 1, help_text="Default: latest.")
    parameters = DictOf(child=AnyValue(), required=False, most=MOST_PARAMETERS)
    changes = serializers.DictField(
        required=False, help_text="Fields of a job. `env` and `tags` are added to the recipe's, others replace them."
    )


class RecipeParameterAnswer(serializers.Serializer[Any]):
    """A parameter of a recipe."""

    name = serializers.CharField()
    type = serializers.ChoiceField(tuple(TYPES.items()))
    default = AnyValue(allow_null=True, help_text="Null: it must be given.")
    description = serializers.CharField()
    choices = serializers.ListField(child=AnyValue())


class LastJobAnswer(serializers.Serializer[LastJob]):
    """The newest job of a recipe that has started."""

    id = serializers.UUIDField()
    state = serializers.ChoiceField(Job.State.choices)
    gpu_type = serializers.CharField()
    gpu_count = serializers.IntegerField()
    rate = serializers.FloatField(allow_null=True, help_text="Steps/s, as measured; null before its second report.")
    started_at = serializers.DateTimeField(allow_null=True)


class RecipeAnswer(serializers.ModelSerializer[Recipe]):
    """A recipe with its latest version, and how it was used."""

    team = serializers.CharField(source="team.name")
    parameters = serializers.SerializerMethodField()
    spec = serializers.SerializerMethodField()
    changed_by = serializers.SerializerMethodField()
    last_job = serializers.SerializerMethodField()

    class Meta:
        model = Recipe
        fields: tuple[str, ...] = (
            *("id", "name", "team", "description", "editors", "version", "parameters", "spec"),
            *("changed_by", "created_at", "changed_at", "submissions", "last_job"),
        )
        read_only_fields: tuple[str, ...] = fields

    @extend_schema_field(RecipeParameterAnswer(many=True))
    def get_parameters(self, recipe: Recipe) -> list[dict[str, Any]]:
        return list(self._latest(recipe).parameters)

    @extend_schema_field({"type": "object", "additionalProperties": True})
    def get_spec(self, recipe: Recipe) -> dict[str, Any]:
        return dict(self._latest(recipe).spec)

    @extend_schema_field(serializers.CharField(allow_null=True, help_text="Who wrote the latest version."))
    def get_changed_by(self, recipe: Recipe) -> str | None:
        author = self._latest(recipe).author
        return author.username if author else None

    @extend_schema_field(LastJobAnswer(allow_null=True, help_text="Null: none has started, or it is in the archive."))
    def get_last_job(self, recipe: Recipe) -> dict[str, Any] | None:
        found = self.context["last_jobs"]().get(recipe.pk)
        return dict(LastJobAnswer(found).data) if found else None

    def _latest(self, recipe: Recipe) -> RecipeVersion:
        version: RecipeVersion = self.context["versions"]()[recipe.pk]
        return version


class RecipeInFull(RecipeAnswer):
    """One recipe."""

    etag = serializers.SerializerMethodField(help_text="Entity tag of this state; send it as `If-Match` with a change.")

    class Meta(RecipeAnswer.Meta):
        fields = (*RecipeAnswer.Meta.fields, "etag")
        read_only_fields = fields

    def get_etag(self, recipe: Recipe) -> str:
        return ""  # computed from the whole representation, in `to_representation`

    def to_representation(self, instance: Recipe) -> dict[str, Any]:
        whole: dict[str, Any] = super().to_representation(instance)
        return whole | {"etag": etag_of(whole)}


class RecipeVersionAnswer(serializers.ModelSerializer[RecipeVersion]):
    """A version of a recipe."""

    version = serializers.IntegerField(source="number")
    author = serializers.CharField(source="author.username", default=None, allow_null=True, read_only=True)
    parameters = RecipeParameterAnswer(many=True)
    spec = SpecWithPlaces()

    class Meta:
        model = RecipeVersion
        fields = ("version", "author", "created_at", "parameters", "spec")
        read_only_fields = fields


class RecipeFilter(django_filters.FilterSet):  # type: ignore[misc]
    team = django_filters.CharFilter(field_name="team__name", label="The team's name.")
    name = django_filters.CharFilter(strip=False, label="The whole name.")

    class Meta:
        model = Recipe
        fields: tuple[str, ...] = ()


@extend_schema_view(list=extend_schema(summary="List recipes"))
class RecipeViewSet(ShowMany[Recipe], viewsets.GenericViewSet[Recipe]):
    """Recipes of the caller's teams, the oldest first."""

    permission_classes = (NotForJobs,)
    queryset = Recipe.objects.none()
    serializer_class = RecipeAnswer
    filterset_class = RecipeFilter
    pagination_class = OldestFirst
    lookup_value_regex = r"\d{1,18}"
    largest_bodies = dict.fromkeys(("create", "partial_update", "submit"), LARGEST_SPEC_BYTES)

    def get_queryset(self) -> QuerySet[Recipe]:
        return Recipe.objects.visible_to(caller(self.request)).select_related("team")

    def paginate_queryset(self, queryset: Any) -> list[Any] | None:
        self.listed: list[Recipe] = super().paginate_queryset(queryset) or []
        return self.listed

    def get_serializer_context(self) -> dict[str, Any]:
        more = {"versions": lambda: self.versions, "last_jobs": lambda: self.last_jobs}
        return {**super().get_serializer_context(), **more}

    @cached_property
    def versions(self) -> dict[int, RecipeVersion]:
        """Latest versions of those in the list."""
        return latest_versions(self.listed)

    @cached_property
    def last_jobs(self) -> dict[int, LastJob]:
        return last_jobs(self.listed)

    @extend_schema(summary="Get a recipe", responses={200: RecipeInFull}, parameters=[FIELDS, IF_NONE_MATCH])
    def retrieve(self, request: Request, pk: str) -> Response:
        """Get a recipe with its latest version, how often it was submitted, and its last job."""
        return single(request, _in_full(self.get_object()))

    @extend_schema(
        summary="Add a recipe", request=RecipeSpec, responses={201: RecipeInFull}, parameters=[IDEMPOTENCY_KEY]
    )
    def create(self, request: Request) -> Response:
        """Add a recipe. Its spec is checked with the default values of its parameters, and again at each submission."""
        keyed = KeyedRequest.of(request)
        if answer := keyed.stored_answer():
            return _created(answer, replayed=True)
        recipe, version = admitted_recipe(body_of(request, RecipeSpec), author=caller(request), now=timezone.now())
        with keyed.exclusive():
            if answer := keyed.stored_answer():
                return _created(answer, replayed=True)
            add_recipe(recipe, version)
            answer = _in_full(recipe)
            keyed.store(answer, status=status.HTTP_201_CREATED)
        return _created(answer)

    @extend_schema(
        summary="Change a recipe", request=RecipeChange, responses={200: RecipeInFull}, parameters=[IF_MATCH]
    )
    def partial_update(self, request: Request, pk: str) -> Response:
        """Change a recipe. Another spec, or other parameters, become its next version; jobs keep theirs."""
        recipe, asked = self.get_object(), body_of(request, RecipeChange)
        change_recipe(
            recipe,
            asked,
            actor=caller(request),
            now=timezone.now(),
            check=lambda: refuse_stale(request, lambda: self._shown(recipe)),
        )
        return single(request, self._shown(recipe))

    @extend_schema(summary="Delete a recipe", responses={204: None})
    def destroy(self, request: Request, pk: str) -> Response:
        """Delete a recipe, with its versions. Its jobs stay."""
        delete_recipe(self.get_object(), actor=caller(request))
        return Response(status=status.HTTP_204_NO_CONTENT)

    @extend_schema(
        summary="Submit a job by a recipe",
        request=RecipeSubmission,
        responses={200: PlanWithForecast, 201: JobInFull},
        parameters=[SubmitQuery, IDEMPOTENCY_KEY],
    )
    @action(detail=True, methods=["post"])
    def submit(self, request: Request, pk: str) -> Response:
        """Submit a job in the caller's name. The response has the job; with `dry_run` its plan (200)."""
        recipe, query = self.get_object(), query_of(request, SubmitQuery)
        keyed = KeyedRequest.of(request)
        if not query.get("dry_run") and (answer := keyed.stored_answer()):
            return _created(answer, replayed=True)
        asked = body_of(request, RecipeSubmission)
        job = admitted_job(
            recipe,
            caller(request),
            values=asked.get("parameters", {}),
            changes=asked.get("changes", {}),
            number=asked.get("version"),
            administrator=is_administrator(request),
        )
        if query.get("dry_run"):
            plan = dry_run_of_admitted(job) | {"spec": draft_spec(job), "forecast": None}
            if query.get("forecast"):
                plan["forecast"] = forecast_plan(job, caller(request), timezone.now())._asdict()
            return Response(PlanWithForecast(plan).data)
        (job,) = with_budget_notes([job], timezone.now())
        with keyed.exclusive():
            if answer := keyed.stored_answer():
                return _created(answer, replayed=True)
            answer = in_full(just_written(submit_admitted(recipe, job), job))
            keyed.store(answer, status=status.HTTP_201_CREATED)
        return _created(answer)

    @extend_schema(
        summary="List versions of a recipe",
        responses=RecipeVersionAnswer(many=True),
        parameters=[FIELDS],
        filters=False,
    )
    @action(detail=True, methods=["get"], url_path="versions", pagination_class=ByNumber, filterset_class=None)
    def versions_of(self, request: Request, pk: str) -> Response:
        """The versions of a recipe, the latest first; of more than 100 the oldest are deleted."""
        wanted = fields_wanted(request, dict.fromkeys(RecipeVersionAnswer().fields))
        paginator = ByNumber()
        rows = self.get_object().versions.select_related("author")
        page = paginator.paginate_queryset(rows, request, view=self) or []
        shown = RecipeVersionAnswer(page, many=True).data
        return paginator.get_paginated_response([{name: row[name] for name in row if name in wanted} for row in shown])

    def _shown(self, recipe: Recipe) -> dict[str, Any]:
        with transaction.atomic():
            return _in_full(self.get_queryset().get(pk=recipe.pk))


def _in_full(recipe: Recipe) -> dict[str, Any]:
    context = {"versions": lambda: latest_versions([recipe]), "last_jobs": lambda: last_jobs([recipe])}
    return RecipeInFull(context=context).to_representation(recipe)


def _created(answer: Any, *, replayed: bool = False) -> Response:
    headers = {"ETag": etag_of(answer)} | ({"Idempotency-Replayed": "true"} if replayed else {})
    return Response(answer, status=status.HTTP_201_CREATED, headers=headers)
