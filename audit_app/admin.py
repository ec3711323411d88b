"""The audit list in the administration, and a mixin that adds changes made in the admin to it."""

from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import ChangeList
from django.contrib.auth.admin import GroupAdmin, UserAdmin
from django.contrib.auth.models import Group, User
from django.db.models import Model, QuerySet
from django.http import HttpRequest

from audit_app.models import AuditEntry
from audit_app.services import note

if TYPE_CHECKING:
    Base = admin.ModelAdmin[Any]
else:
    Base = object


class Audited(Base):
    """Mixin for `ModelAdmin`: additions, changes and deletions are written to the audit list."""

    def log_addition(self, request: HttpRequest, obj: Model, message: Any) -> Any:
        self._note("admin.add", request, obj, message)
        return super().log_addition(request, obj, message)

    def log_change(self, request: HttpRequest, obj: Model, message: Any) -> Any:
        self._note("admin.change", request, obj, message)
        return super().log_change(request, obj, message)

    def log_deletions(self, request: HttpRequest, queryset: QuerySet[Any]) -> Any:
        for obj in queryset:
            self._note("admin.delete", request, obj, "")
        return super().log_deletions(request, queryset)

    def _note(self, action: str, request: HttpRequest, obj: Model, message: Any) -> None:
        actor = request.user if request.user.is_authenticated else None
        target = f"{obj._meta.verbose_name} {obj}"
        note(action, actor=actor, target=target, target_id=obj.pk, message=_words(message))


def _words(message: Any) -> str:
    """Names of the changed fields; never their values, which may include a password."""
    parts = message if isinstance(message, list) else []
    return ", ".join(field for part in parts for field in part.get("changed", {}).get("fields", []))


@admin.register(AuditEntry)
class AuditEntryAdmin(admin.ModelAdmin[AuditEntry]):
    list_display = ("at", "actor_name", "door", "action", "target", "message", "request_id")
    list_filter = ("door", "action")
    search_fields = ("=actor_name", "=target_id", "=request_id")
    date_hierarchy = "at"
    show_full_result_count = False

    def get_changelist_instance(self, request: HttpRequest) -> ChangeList:
        try:
            return super().get_changelist_instance(request)
        except (ValueError, OverflowError) as error:  # Django computes the days beside that of the address, in a zone
            raise IncorrectLookupParameters(error) from error

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: AuditEntry | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: AuditEntry | None = None) -> bool:
        return False


admin.site.unregister(User)
admin.site.unregister(Group)


@admin.register(User)
class AuditedUserAdmin(Audited, UserAdmin[User]):
    pass


@admin.register(Group)
class AuditedGroupAdmin(Audited, GroupAdmin):
    pass
