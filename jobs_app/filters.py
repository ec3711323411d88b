"""How lists of jobs are narrowed, the same in REST and on the page. Each way can go by an index."""

import re
from collections.abc import Iterable
from typing import Any
from uuid import UUID

import django_filters
from django import forms
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.db import connection
from django.db.models import Q
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema_field

from jobs_app.fields import is_text
from jobs_app.models import Attempt, Job, JobTag, Team
from jobs_app.models.job import JobQuerySet

LAST_CHARACTER = "\U0010ffff"
SEARCH = (
    "Words that must all hold: `name=value` is a tag of exactly that value; the other words, joined by blanks, are the "
    "beginning of the job's name, or of its id (at least 8 of its hexadecimal digits)."
)
TAG = "A tag that the job must have, as `name=value` or just `name`; given several times, all of them."


class Texts(forms.Field):
    """A parameter that may come several times."""

    widget = forms.SelectMultiple

    def clean(self, value: Any) -> list[str]:
        texts = list(value or [])
        if not all(is_text(text) and text for text in texts):
            raise ValidationError("Write name=value, or a name.")
        return texts


class TagFilter(django_filters.Filter):  # type: ignore[misc]
    field_class = Texts


class JobFilter(django_filters.FilterSet):  # type: ignore[misc]
    state = django_filters.MultipleChoiceFilter(choices=Job.State.choices, method="in_states")
    team = django_filters.CharFilter(method="of_team", label="The team's name.")
    owner = django_filters.CharFilter(method="of_owner", label="Who submitted it.")
    array = django_filters.UUIDFilter(field_name="array")
    gpu_type = django_filters.CharFilter(method="running_on", label="The GPU type that it has or awaits now.")
    tag = TagFilter(method="tagged", label=TAG)
    created_after = django_filters.IsoDateTimeFilter(field_name="created_at", lookup_expr="gt")
    updated_since = django_filters.IsoDateTimeFilter(
        field_name="updated_at", lookup_expr="gte", label="Jobs of which anything changed at this moment or later."
    )
    q = django_filters.CharFilter(method="matching", label=SEARCH)

    class Meta:
        model = Job
        fields: tuple[str, ...] = ()

    # Names are looked up first: joined, no index would give the jobs of one team in order; and PostgreSQL plans by how
    # many jobs this very team has, which it does not know of what a subquery will say.

    def in_states(self, jobs: JobQuerySet, name: str, value: Iterable[str]) -> JobQuerySet:
        """One condition, not one for each joined by OR: it is seen that the index of unfinished jobs suffices."""
        return jobs.filter(state__in=list(value))

    @extend_schema_field(OpenApiTypes.STR)
    def of_team(self, jobs: JobQuerySet, name: str, value: str) -> JobQuerySet:
        return jobs.filter(team__in=list(Team.objects.filter(name=value).values_list("pk", flat=True)))

    @extend_schema_field(OpenApiTypes.STR)
    def of_owner(self, jobs: JobQuerySet, name: str, value: str) -> JobQuerySet:
        return jobs.filter(owner__in=list(User.objects.filter(username=value).values_list("pk", flat=True)))

    @extend_schema_field(OpenApiTypes.STR)
    def running_on(self, jobs: JobQuerySet, name: str, value: str) -> JobQuerySet:
        return jobs.filter(pk__in=Attempt.objects.live().filter(gpu_type__name=value).order_by().values("job"))

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
        found = self.tagged(jobs, name, [word for word in words if "=" in word])
        return found.filter(_name_begins(beginning) | _id_begins(beginning)) if beginning else found


def _name_begins(text: str) -> Q:
    """SQLite's LIKE goes by no index and sees no difference between A and a; there a range does both."""
    if connection.vendor == "sqlite":
        return Q(name__gte=text, name__lt=text + LAST_CHARACTER)
    return Q(name__startswith=text)


def _id_begins(text: str) -> Q:
    """A range of ids: nothing is made into text for it."""
    digits = text.replace("-", "").lower()
    if not re.fullmatch(r"[0-9a-f]{8,32}", digits):
        return Q(pk__in=[])
    return Q(pk__gte=UUID(digits.ljust(32, "0")), pk__lte=UUID(digits.ljust(32, "f")))
