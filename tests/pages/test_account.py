"""Tokens, the password and the activity log."""

import re
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client, RequestFactory
from django.urls import reverse
from rest_framework.test import APIClient

from audit_app.models import AuditEntry
from audit_app.services import note
from jobs_app.models import ApiToken
from jobs_app.tokens import MOST_TOKENS
from operations.client_wheel import wheel_name
from web.pages.account import tokens

FORM = {"name": "laptop", "scope": "read", "lifetime": "30"}


def new_token(client: Client, **changed: str) -> str:
    """The token that the page shows."""
    shown = client.post(reverse("tokens"), FORM | changed).content.decode()
    return re.search(r'id="new-token">(mot_[\w-]+)<', shown)[1]


# -- tokens ------------------------------------------------------------------------------------------------------


def test_the_token_that_the_page_shows_is_good(member, web):
    text = new_token(web(member))
    assert APIClient(headers={"authorization": f"Bearer {text}"}).get("/api/v1/jobs").status_code == 200


def test_the_token_is_shown_once(member, web):
    client = web(member)
    text = new_token(client)
    assert text not in client.get(reverse("tokens")).content.decode()


def test_the_page_with_a_token_is_kept_by_no_cache(member, web):
    assert "no-store" in web(member).post(reverse("tokens"), FORM)["Cache-Control"]


def test_a_login_that_ends_while_a_token_is_asked_for_leads_to_another(member):
    request = RequestFactory().post(reverse("tokens"), FORM)
    request.user = User.objects.get(pk=member.pk)
    member.set_password("another-harbour-23")
    member.save()
    assert tokens(request)["Location"] == reverse("tokens"), "which only a login that is valid sees"
    assert not ApiToken.objects.exists()


def test_a_token_has_the_scope_and_the_lifetime_that_were_chosen(member, web):
    new_token(web(member))
    token = ApiToken.objects.get()
    assert (token.scope, round((token.expires_at - token.created_at).total_seconds() / 86_400)) == ("read", 30)


def test_a_token_can_be_good_for_ever(member, web):
    new_token(web(member), lifetime="")
    assert ApiToken.objects.get().expires_at is None


def test_a_token_needs_a_name(member, web):
    answer = web(member).post(reverse("tokens"), FORM | {"name": " "})
    assert (list(answer.context["form"].errors), ApiToken.objects.count()) == (["name"], 0)


def test_one_token_too_many_is_refused_with_the_remedy(member, web):
    many = [ApiToken(user=member, name=f"{n}", digest=f"{n}") for n in range(MOST_TOKENS)]
    ApiToken.objects.bulk_create(many)
    assert "revoke one first" in web(member).post(reverse("tokens"), FORM).content.decode()


@pytest.mark.parametrize(("who", "may"), [("member", False), ("staff", True)])
def test_only_staff_make_tokens_that_administer(who, may, request, web):
    web(request.getfixturevalue(who)).post(reverse("tokens"), FORM | {"scope": "admin"})
    assert ApiToken.objects.exists() is may


def test_a_revoked_token_is_refused(member, web):
    client = web(member)
    text = new_token(client)
    client.post(reverse("revoke-token", args=[ApiToken.objects.get().pk]))
    assert APIClient(headers={"authorization": f"Bearer {text}"}).get("/api/v1/jobs").status_code == 401


def test_users_neither_see_nor_revoke_the_tokens_of_others(member, staff, web):
    new_token(web(member))
    token = ApiToken.objects.get()
    assert web(staff).post(reverse("revoke-token", args=[token.pk])).status_code == 404
    assert token.prefix not in web(staff).get(reverse("tokens")).content.decode()


# -- the password ------------------------------------------------------------------------------------------------


@pytest.fixture
def mia(member: User) -> User:
    member.set_password("the old one 1")
    member.save()
    return member


def change(client: Client, old: str, new: str) -> Any:
    fields = {"old_password": old, "new_password1": new, "new_password2": new}
    return client.post(reverse("change-password"), fields)


def test_a_password_is_changed_and_the_session_stays(mia, web):
    client = web(mia)
    change(client, "the old one 1", "a better one 2")
    mia.refresh_from_db()
    assert mia.check_password("a better one 2")
    assert client.get(reverse("home")).status_code == 200


def test_the_other_sessions_end_with_the_password(mia, web):
    elsewhere = web(mia)
    change(web(mia), "the old one 1", "a better one 2")
    assert elsewhere.get(reverse("home")).status_code == 302


@pytest.mark.parametrize(
    ("old", "new", "field"), [("wrong", "a better one 2", "old_password"), ("the old one 1", "short", "new_password2")]
)
def test_a_fault_is_said_at_its_field(old, new, field, mia, web):
    answer = change(web(mia), old, new)
    assert list(answer.context["form"].errors) == [field]


# -- activity log -----------------------------------------------------------------------------------------------


def test_staff_see_the_actions_of_all_users(member, staff, web):
    note("job.cancel", actor=member, target="resnet", target_id="1")
    shown = web(staff).get(reverse("audit")).content.decode()
    assert all(word in shown for word in ("mia", "cancelled a job", "resnet"))


def test_others_see_what_they_did_themselves(member, staff, stranger, web):
    note("job.cancel", actor=member, target="resnet", target_id="1")
    assert "resnet" in web(member).get(reverse("audit")).content.decode()
    assert "resnet" not in web(stranger).get(reverse("audit")).content.decode()


@pytest.mark.parametrize("asked", [{"actor": "mia"}, {"action": "job.hold"}, {"target": "1"}])
def test_the_list_is_narrowed(asked, member, staff, web):
    note("job.hold", actor=member, target="resnet", target_id="1")
    note("node.drain", actor=staff, target="rack-7-node", target_id="2")
    shown = web(staff).get(reverse("audit"), asked).content.decode()
    assert "resnet" in shown
    assert "rack-7-node" not in shown


def test_entries_of_a_name_are_found_by_an_index(member):
    """The list keeps two years: a name that nobody has would read all of it."""
    found = AuditEntry.objects.filter(actor_name="nobody").order_by("-id")[:20]
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SET LOCAL enable_seqscan = off")  # of a few rows it is the cheapest
    assert "audit_by_name" in found.explain()


def test_a_changed_password_is_on_the_list_without_the_password(mia, web):
    change(web(mia), "the old one 1", "a better one 2")
    entry = AuditEntry.objects.get(action="password.change")
    assert (entry.actor, "better" in str(entry.__dict__)) == (mia, False)


def test_what_is_changed_in_the_admin_is_on_the_list_with_the_fields(staff, member, web):
    team = member.teams.get(name="vision")
    limits = {name: getattr(team, name) for name in ("max_job_weight", "max_code_mib", "volunteers")}
    inlines = {f"{form}-{count}_FORMS": 0 for form in ("budget", "quotas") for count in ("TOTAL", "INITIAL")}
    fields = {"name": "vision", "weight": 3, **limits, "members": [member.pk], **inlines}
    web(staff).post(reverse("admin:jobs_app_team_change", args=[team.pk]), fields)
    entry = AuditEntry.objects.get(action="admin.change")
    assert (entry.actor, entry.target, entry.message) == (staff, "team vision", "Weight")


def test_what_is_deleted_in_the_admin_is_on_the_list(staff, stranger, web):
    row = stranger.teams.get()
    web(staff).post(reverse("admin:jobs_app_team_delete", args=[row.pk]), {"post": "yes"})
    assert AuditEntry.objects.get(action="admin.delete").target == "team speech"


# -- connecting a terminal ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", ["home", "jobs", "tokens", "client"])
def test_pages_give_commands_that_work_for_the_reader(page, member, web):
    shown = web(member).get(reverse(page), headers={"host": "localhost"}).content.decode()
    assert f"pip install http://localhost/client/{wheel_name()}\nmotley login http://localhost" in shown
    assert "demo.env" not in shown


@pytest.mark.parametrize("page", ["home", "jobs", "tokens"])
def test_one_click_makes_a_token_for_a_terminal(page, member, web):
    client = web(member)
    shown = client.get(reverse(page)).content.decode()
    form = re.search(r'<form method="post" action="([^"]+)" id="terminal-token">(.*?)</form>', shown, re.DOTALL)
    assert 'form="terminal-token"' in shown
    fields = dict(re.findall(r'name="(name|scope|lifetime)" value="([^"]+)"', form[2]))
    assert 'id="new-token">mot_' in client.post(form[1], fields).content.decode()
    assert ApiToken.objects.get().scope == "submit"


def test_no_other_file_is_served_beside_the_wheel(client, db):
    assert client.get("/client/settings.py").status_code == 404
    assert client.get(f"/client/{wheel_name()}")["Content-Type"] == "application/zip"
