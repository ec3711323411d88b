"""Accounts in the administration, with the form "Invite a person"."""

from collections.abc import Sequence
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone

from audit_app.admin import AuditedUserAdmin
from cluster_app.retiring_admin import protecting, refer
from jobs_app.errors import NotAccepted
from jobs_app.forms import InviteMemberForm
from jobs_app.invitations import invite, mail_invitation
from jobs_app.models import Team
from jobs_app.password_forms import AccountPasswordForm

NEEDED = ("auth.add_user", "jobs_app.change_team")


def _references(user: User) -> dict[str, int]:
    """What keeps the account: jobs and the like, and tokens, which are a record of access."""
    tokens = user.api_tokens.count()
    return protecting(user) | ({"API tokens" if tokens > 1 else "API token": tokens} if tokens else {})


class InviteForm(InviteMemberForm):
    """Name, mail address, team and role of a new person."""

    team = forms.ModelChoiceField(Team.objects.none(), empty_label=None, help_text="Jobs are submitted for a team.")
    field_order = ("username", "email", "team", "lead")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["team"].queryset = Team.objects.current()  # type: ignore[attr-defined]  # a choice of rows


admin.site.unregister(User)


@admin.register(User)
class InvitingUserAdmin(AuditedUserAdmin):
    change_list_template = "admin/auth/user/with_invitation.html"
    delete_confirmation_template = delete_selected_confirmation_template = "admin/auth/user/delete_or_deactivate.html"
    change_password_form = AccountPasswordForm
    actions = ("deactivate",)

    def save_model(self, request: HttpRequest, obj: User, form: forms.ModelForm[User], change: bool) -> None:
        """Write what was changed alone: else a password that has ended since the account was read is written again."""
        columns = {field.name for field in obj._meta.concrete_fields}
        obj.save(update_fields=columns.intersection(form.changed_data) if change else None)

    @admin.action(description="Deactivate: no login, no tokens; kept in the history", permissions=["change"])
    def deactivate(self, request: HttpRequest, users: QuerySet[User]) -> None:
        own = request.user.get_username()
        if users.filter(username=own).exists():
            self.message_user(request, "Another administrator must deactivate your own account.", messages.ERROR)
        others = users.filter(is_active=True).exclude(username=own)
        for user in others:
            user.is_active = False
            user.save(update_fields=["is_active"])
            self.log_change(request, user, [{"changed": {"fields": ["Active"]}}])
            self.message_user(request, f"Deactivated: {user}. Tick Active on its page to undo that.")

    def get_deleted_objects(
        self, objs: QuerySet[User] | Sequence[User], request: HttpRequest
    ) -> tuple[list[Any], dict[Any, Any], set[Any], list[Any]]:
        """For an account with a history one line says that it is kept; others go with what depends on them."""
        kept = [f"{user}: {refer(found)}" for user in objs if (found := _references(user))]
        if kept:
            return [], {}, set(), kept
        to_delete, counts, _, protected = super().get_deleted_objects(objs, request)
        return to_delete, counts, set(), protected

    def get_urls(self) -> list[URLPattern]:
        own = path("invite/", self.admin_site.admin_view(self.invite), name="auth_user_invite")
        return [own, *super().get_urls()]

    def invite(self, request: HttpRequest) -> HttpResponse:
        """Invite a person; the answer to the form is the only page that shows the link."""
        if not request.user.has_perms(NEEDED):
            raise PermissionDenied
        form = InviteForm(request.POST if request.method == "POST" else None)
        context = {**self.admin_site.each_context(request), "title": "Invite a person", "opts": self.opts, "form": form}
        if form.is_valid():
            context |= self._invited(request, form)
        return TemplateResponse(request, "admin/auth/user/invite.html", context)

    def _invited(self, request: HttpRequest, form: InviteForm) -> dict[str, Any]:
        try:
            user, text = invite(**form.cleaned_data, actor=request.user, now=timezone.now())  # type: ignore[arg-type]
        except NotAccepted as error:
            form.add_error(error.field, str(error))
            return {}
        link = f"{request.build_absolute_uri(reverse('invitation'))}#{text}"
        return {"invited": user, "link": link, "mailed": mail_invitation(user, link)}
