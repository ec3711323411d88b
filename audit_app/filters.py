"""Filters of the audit list."""

import django_filters

from audit_app.models import Action, AuditEntry


class AuditFilter(django_filters.FilterSet):  # type: ignore[misc]
    actor = django_filters.CharFilter(field_name="actor_name", label="who")
    action = django_filters.ChoiceFilter(choices=Action.choices, label="did what")
    target = django_filters.CharFilter(field_name="target_id", label="to which id")
    since = django_filters.IsoDateTimeFilter(field_name="at", lookup_expr="gte", label="since")

    class Meta:
        model = AuditEntry
        fields: tuple[str, ...] = ()
