"""Filters of job lists, in REST and on pages. An index serves each of them."""

import json
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import django_filters
from django import forms
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.db import connection
from django.db.models import Q, TextField, Value
from django.db.models.functions import Cast, Replace
from django_filters.fields import IsoDateTimeField
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema_field

from jobs_app.models import Attempt, Job, JobTag, Recipe, RecurringJob, Team
from jobs_app.models.job import TAIL_DIGITS, IdTail, JobQuerySet
from jobs_app.submission.fields import is_text

LAST_CHARACTER = "\U0010ffff"
SEARCH = (
    "Search: a word `name=value` matches a tag with exactly this value; the other words together match the beginning "
    "of the job's name, or the beginning or end of its id (at least 8 hexadecimal digits); `name[3]` is "
    "a task of an array."
)
NEWEST_COMMANDS, MOST_COMMANDS = 5_000, 500
COMMAND = (
    f"Text in the job's command, in any case. It is looked for in the newest {NEWEST_COMMANDS:,} jobs that match the "
    f"other filters; the newest {MOST_COMMANDS} with it are found."
)
TAG = "A tag of the job, as `name=value` or `name`. Given several times, the job must have all of them."


MOST_TAGS = 10
"""Tags that one query may name: each is a semi-join, and a database plans many of them for minutes."""
TOO_MANY_TAGS = f"Give at most {MOST_TAGS} tags."


class Texts(forms.Field):
    """Parameter that can be repeated."""

    widget = forms.SelectMultiple

    def clean(self, value: Any) -> list[str]:
        texts = list(value or [])
        if not all(is_text(text) and text for text in texts):
            raise ValidationError("Write name=value, or name.")
        if len(texts) > MOST_TAGS:
            raise ValidationError(TOO_MANY_TAGS)
        return texts


class TagFilter(django_filters.Filter):  # type: ignore[misc]
    field_class = Texts


class SearchText(forms.CharField):
    def clean(self, value: Any) -> str:
        text = str(super().clean(value))
        if len(_tags_in(text)) > MOST_TAGS:
            raise ValidationError(TOO_MANY_TAGS)
        return text


class SearchFilter(django_filters.CharFilter):  # type: ignore[misc]
    field_class = SearchText


class CommandText(forms.CharField):
    def clean(self, value: Any) -> str:
        text = str(super().clean(value))
        if not is_text(text):
            raise ValidationError("Write text without NUL and lone surrogates.")
        return text


class CommandFilter(django_filters.CharFilter):  # type: ignore[misc]
    field_class = CommandText


def _tags_in(search: str) -> list[str]:
    return [word for word in search.split() if "=" in word]


class MomentField(IsoDateTimeField):  # type: ignore[misc]
    """Date and time that also in UTC is one of the calendar's."""

    def clean(self, value: Any) -> datetime | None:
        moment: datetime | None = super().clean(value)
        try:
            return moment.astimezone(UTC) if moment else None
        except OverflowError as error:
            raise ValidationError("Write a date between the years 1 and 9999, also in UTC.") from error


class MomentFilter(django_filters.IsoDateTimeFilter):  # type: ignore[misc]
    field_class = MomentField


class GpuTypeFilter(django_filters.CharFilter):  # type: ignore[misc]
    """Name of a GPU type, in any case."""

    def filter(self, queryset: Any, value: str) -> Any:
        return super().filter(queryset, value.lower())


class JobFilter(django_filters.FilterSet):  # type: ignore[misc]
    state = django_filters.MultipleChoiceFilter(choices=Job.State.choices, method="in_states")
    team = django_filters.CharFilter(method="of_team", label="The team's name.")
    owner = django_filters.CharFilter(method="of_owner", label="Username of the submitter.")
    array = django_filters.UUIDFilter(field_name="array")
    recurring = django_filters.CharFilter(
        method="of_recurring",
        strip=False,
        label="Name of the recurring job of which it is a run; add `team` if several have it.",
    )
    recipe = django_filters.CharFilter(
        method="of_recipe",
        strip=False,
        label="Name of the recipe by which it was submitted; add `team` if several have it.",
    )
    gpu_type = django_filters.CharFilter(method="running_on", label="The GPU type of the job's live attempt.")
    tag = TagFilter(method="tagged", label=TAG)
    created_after = MomentFilter(field_name="created_at", lookup_expr="gt")
    updated_since = MomentFilter(
        field_name="updated_at", lookup_expr="gte", label="Jobs that were changed at this time or later."
    )
    q = SearchFilter(method="matching", label=SEARCH)
    command = CommandFilter(method="with_command", label=COMMAND)
    name = django_filters.CharFilter(
        method="named", strip=False, label="The job's whole name; `name[3]` also finds a task of an array."
    )

    class Meta:
        model = Job
        fields: tuple[str, ...] = ()

    # Names are resolved to ids first: with a join no index returns the jobs of one team in order, and with a subquery
    # PostgreSQL does not know how many jobs the team has when it plans.

    def in_states(self, jobs: JobQuerySet, name: str, value: Iterable[str]) -> JobQuerySet:
        """`state IN (...)` instead of conditions joined by OR, so that the partial index of unfinished jobs is used."""
        return jobs.filter(state__in=list(value))

    @extend_schema_field(OpenApiTypes.STR)
    def of_team(self, jobs: JobQuerySet, name: str, value: str) -> JobQuerySet:
        return jobs.filter(team__in=list(Team.objects.filter(name=value).values_list("pk", flat=True)))

    @extend_schema_field(OpenApiTypes.STR)
    def of_owner(self, jobs: JobQuerySet, name: str, value: str) -> JobQuerySet:
        return jobs.filter(owner__in=list(User.objects.filter(username=value).values_list("pk", flat=True)))

    @extend_schema_field(OpenApiTypes.STR)
    def of_recurring(self, jobs: JobQuerySet, name: str, value: str) -> JobQuerySet:
        named = RecurringJob.objects.filter(name=value)
        return jobs.filter(recurring__in=list(named.values_list("pk", flat=True)))

    @extend_schema_field(OpenApiTypes.STR)
    def of_recipe(self, jobs: JobQuerySet, name: str, value: str) -> JobQuerySet:
        return jobs.filter(recipe__in=list(Recipe.objects.filter(name=value).values_list("pk", flat=True)))

    @extend_schema_field(OpenApiTypes.STR)
    def running_on(self, jobs: JobQuerySet, name: str, value: str) -> JobQuerySet:
        return jobs.filter(pk__in=Attempt.objects.live().filter(gpu_type__name=value.lower()).order_by().values("job"))

    @extend_schema_field({"type": "array", "items": {"type": "string", "minLength": 1}})
    def tagged(self, jobs: JobQuerySet, name: str, value: Iterable[str]) -> JobQuerySet:
        for text in value:
            tag, equals, of_value = text.partition("=")
            rows = JobTag.objects.filter(name=tag)
            jobs = jobs.filter(pk__in=(rows.filter(value=of_value) if equals else rows).values("job"))
        return jobs

    @extend_schema_field(OpenApiTypes.STR)
    def matching(self, jobs: JobQuerySet, name: str, value: str) -> JobQuerySet:
        words = value.split()
        beginning = " ".join(word for word in words if "=" not in word)
        found = self.tagged(jobs, name, _tags_in(value))
        if not beginning:
            return found
        return found.alias(id_tail=IdTail("pk")).filter(
            _name_begins(beginning) | _id_has(beginning) | _is_task(beginning)
        )

    @extend_schema_field(OpenApiTypes.STR)
    def named(self, jobs: JobQuerySet, name: str, value: str) -> JobQuerySet:
        return jobs.filter(Q(name=value) | _is_task(value))

    @extend_schema_field(OpenApiTypes.STR)
    def with_command(self, jobs: JobQuerySet, name: str, value: str) -> JobQuerySet:
        """Bounded, for no index serves it; resolved to ids, so that commands are read once for several queries."""
        newest = jobs.order_by("-pk").values("pk")[:NEWEST_COMMANDS]
        words = Replace(Cast("command", TextField()), Value('", "'), Value(" "), output_field=TextField())
        alike = Job.objects.filter(pk__in=newest).alias(words=words).filter(words__icontains=_in_json(value))
        return jobs.filter(pk__in=list(alike.order_by("-pk").values_list("pk", flat=True)[:MOST_COMMANDS]))


def _in_json(text: str) -> str:
    """Text as it stands in the column: Django writes ASCII alone, which PostgreSQL's jsonb reads."""
    return json.dumps(text, ensure_ascii=connection.vendor == "sqlite")[1:-1]


def _name_begins(text: str) -> Q:
    """Prefix match; on SQLite a range, since its LIKE uses no index and ignores case."""
    if connection.vendor == "sqlite":
        return Q(name__gte=text, name__lt=text + LAST_CHARACTER)
    return Q(name__startswith=text)


ID_DIGITS, TASK = re.compile(r"[0-9a-f]{8,32}"), re.compile(r"(.+)\[(\d{1,9})\]")


def searches_one_job(text: str) -> bool:
    """Whether the search is for an id or for one task of an array."""
    return bool(ID_DIGITS.fullmatch(_digits(text)) or TASK.fullmatch(text))


def _digits(text: str) -> str:
    return text.replace("-", "").lower()


def _id_has(text: str) -> Q:
    """Ids that begin with the digits, as a range of the primary key, or end with them, by the index of their ends."""
    digits = _digits(text)
    if not ID_DIGITS.fullmatch(digits):
        return Q(pk__in=[])
    begins = Q(pk__gte=UUID(digits.ljust(32, "0")), pk__lte=UUID(digits.ljust(32, "f")))
    return begins | Q(id_tail=digits[-TAIL_DIGITS:])


def _is_task(text: str) -> Q:
    """`sweep[3]`: the task of an array with this index."""
    task = TASK.fullmatch(text)
    return Q(name=task[1], array_index=int(task[2])) if task else Q(pk__in=[])
