"""Accounts in Django admin, with the form "Invite a person"."""

from typing import Any

from django import forms
from django.contrib import admin
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone

from audit_app.admin import AuditedUserAdmin
from jobs_app.errors import NotAccepted
from jobs_app.forms import InviteMemberForm
from jobs_app.invitations import invite, mail_invitation
from jobs_app.models import Team

NEEDED = ("auth.add_user", "jobs_app.change_team")


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
