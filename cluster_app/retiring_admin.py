"""Admin of rows that are retired instead of deleted: a filter, two actions, and a deletion that says what to do."""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from django.contrib import admin, messages
from django.db.models import PROTECT, Model, QuerySet
from django.http import HttpRequest

from cluster_app.errors import ClusterError

if TYPE_CHECKING:
    Base = admin.ModelAdmin[Any]
else:
    Base = object


class RetiredFilter(admin.SimpleListFilter):
    """Rows in use, unless retired ones are asked for."""

    title = "retired"
    parameter_name = "retired"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Iterable[tuple[str, str]]:
        return (("yes", "retired"), ("all", "all"))

    def choices(self, changelist: Any) -> Any:
        """With "in use" in place of "all" as the choice without a value."""
        first, *others = super().choices(changelist)
        return [{**first, "display": "in use"}, *others]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        current = queryset.model._default_manager.current().values("pk")
        match self.value():
            case "all":
                return queryset
            case "yes":
                return queryset.exclude(pk__in=current)
            case None if request.GET.get("state__exact") == "retired":
                return queryset
        return queryset.filter(pk__in=current)


class RetiringAdmin(Base):
    """Mixin for `ModelAdmin`: a row to which others refer is retired, and can be restored."""

    refusals: tuple[type[Exception], ...] = (ClusterError,)

    delete_confirmation_template = delete_selected_confirmation_template = "admin/delete_or_retire.html"

    def references(self, row: Any) -> dict[str, int]:
        """What refers to the row for good: plural name of the model → count."""
        return protecting(row)

    def get_deleted_objects(
        self, objs: QuerySet[Any] | Sequence[Any], request: HttpRequest
    ) -> tuple[list[Any], dict[Any, Any], set[Any], list[Any]]:
        """For a row with a history, one line says that it is kept; deleting others deletes only dependent rows."""
        kept = [f"{row}: {refer(found)}" for row in objs if (found := self.references(row))]
        if kept:
            return [], {}, set(), kept
        to_delete, counts, _, protected = super().get_deleted_objects(objs, request)
        return to_delete, counts, set(), protected

    def get_list_filter(self, request: HttpRequest) -> tuple[Any, ...]:
        return (RetiredFilter, *super().get_list_filter(request))

    def do_to_each(self, request: HttpRequest, rows: Iterable[Any], verb: Callable[..., None], done: str) -> None:
        """Carry out a verb on rows one by one, and say what was done and refused."""
        names = []
        for row in rows:
            try:
                verb(row, actor=request.user)
            except self.refusals as error:
                self.message_user(request, str(error), messages.ERROR)
            else:
                names.append(str(row))
        if names:
            self.message_user(request, f"{done}: {', '.join(names)}.")


def protecting(row: Model) -> dict[str, int]:
    """Rows that keep this one from being deleted: plural name of the model → count."""
    counts: dict[str, int] = {}
    nearest_first = sorted(row._meta.related_objects, key=lambda relation: relation.related_model._meta.app_label)
    for relation in nearest_first:
        if relation.on_delete is PROTECT:
            model = relation.related_model
            found = model._default_manager.filter(**{relation.field.name: row}).count()
            if found:
                name = model._meta.verbose_name if found == 1 else model._meta.verbose_name_plural
                counts[str(name)] = counts.get(str(name), 0) + found
    return counts


def refer(counts: dict[str, int]) -> str:
    """`4 nodes and 1 storage refer to it`."""
    *first, last = (f"{count:,} {name}" for name, count in counts.items())
    listed = f"{', '.join(first)} and {last}" if first else last
    return f"{listed} {'refers' if [*counts.values()] == [1] else 'refer'} to it"
