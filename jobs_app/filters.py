"""How lists of jobs are narrowed, the same in REST and on the page."""

from typing import Any

import django_filters
from django.db.models import Q

from jobs_app.models import Job
from jobs_app.models.job import JobQuerySet


class JobFilter(django_filters.FilterSet):  # type: ignore[misc]
    state = django_filters.MultipleChoiceFilter(choices=Job.State.choices)
    team = django_filters.CharFilter(field_name="team__name")
    owner = django_filters.CharFilter(field_name="owner__username")
    array = django_filters.UUIDFilter(field_name="array")
    created_after = django_filters.IsoDateTimeFilter(field_name="created_at", lookup_expr="gt")
    updated_since = django_filters.IsoDateTimeFilter(field_name="updated_at", lookup_expr="gte")
    q = django_filters.CharFilter(method="starting_with", label="The beginning of the name or of the id.")

    class Meta:
        model = Job
        fields: tuple[str, ...] = ()

    def starting_with(self, jobs: JobQuerySet, name: str, value: Any) -> JobQuerySet:
        text = str(value)
        return jobs.filter(Q(name__startswith=text) | Q(id__startswith=text.replace("-", "")))
