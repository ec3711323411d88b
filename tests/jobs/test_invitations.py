"""A new person: one form of an administrator or a lead ends in a link, with which the person chooses a password."""

import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core import mail
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from audit_app.models import AuditEntry
from jobs_app.errors import NotAccepted, NotAllowed
from jobs_app.invitations import invite
from jobs_app.models import Invitation, Team
from jobs_app.models.team import digest_of

FORM = "/admin/auth/user/invite/"
PASSWORD = "violet-harbour-42"


@pytest.fixture
def team(db: None) -> Team:
    return Team.objects.create(name="vision")


@pytest.fixture
def root(db: None) -> User:
    return User.objects.create_superuser("root")


@pytest.fixture
def admin(root: User, plain_static: None) -> Client:
    client = Client()
    client.force_login(root)
    return client


def secret_in(answer: Any) -> str:
    found = re.search(r"/invitation#([\w-]+)", answer.content.decode())
    assert found, answer.content.decode()
    return found[1]


def invited(admin: Client, team: Team, **data: Any) -> str:
    return secret_in(admin.post(FORM, {"username": "ada", "team": team.pk, **data}))


def accept(text: str, password: str = PASSWORD, client: Client | None = None) -> Any:
    return (client or Client()).post(
        "/invitation", {"code": text, "new_password1": password, "new_password2": password}
    )


def logs_in(username: str) -> bool:
    return Client().post("/login/", {"username": username, "password": PASSWORD}).status_code == 302


def test_an_invited_person_chooses_a_password_and_is_signed_in(admin: Client, team: Team) -> None:
    text = invited(admin, team, email="ada@example.org", lead="on")
    ada = User.objects.get(username="ada")
    assert (ada.has_usable_password(), [*ada.teams.all()], [*ada.led_teams.all()]) == (False, [team], [team])
    browser = Client()
    assert "invited as <strong>ada</strong>" in browser.post("/invitation", {"code": text}).content.decode()
    answer = accept(text, client=browser)
    assert answer.url == reverse("home")
    assert browser.get("/").status_code == 200
    assert logs_in("ada")
    assert {"person.invite", "person.join"} <= set(AuditEntry.objects.values_list("action", flat=True))


def test_only_the_hash_of_the_link_is_stored(admin: Client, team: Team) -> None:
    text = invited(admin, team)
    assert Invitation.objects.get().digest == digest_of(text)
    assert not AuditEntry.objects.filter(message__contains=text).exists()


def test_a_link_is_good_once(admin: Client, team: Team) -> None:
    text = invited(admin, team)
    accept(text)
    page = accept(text, "another-password-7").content.decode()
    assert "This invitation was used" in page
    assert logs_in("ada")


def test_an_expired_link_says_whom_to_ask(admin: Client, team: Team) -> None:
    text = invited(admin, team)
    Invitation.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    page = accept(text).content.decode()
    assert "This invitation expired" in page
    assert "Ask root for a new one" in page
    assert not User.objects.get(username="ada").has_usable_password()


def test_a_newer_invitation_replaces_an_older_one(admin: Client, team: Team) -> None:
    old, new = invited(admin, team), invited(admin, team)
    assert "This is no valid invitation" in accept(old).content.decode()
    assert accept(new).status_code == 302


def test_a_weak_password_is_refused_and_the_link_stays_good(admin: Client, team: Team) -> None:
    text = invited(admin, team)
    assert "too short" in accept(text, "short").content.decode()
    assert accept(text).status_code == 302


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ({"username": "two words"}, "Enter a valid username"),
        ({"username": "root"}, "There is an account root"),
        ({"username": ""}, "This field is required"),
        ({"email": "nowhere"}, "Enter a valid email address"),
    ],
)
def test_what_cannot_be_invited_is_said_at_the_field(admin: Client, team: Team, data: Any, says: str) -> None:
    page = admin.post(FORM, {"username": "ada", "team": team.pk, **data}).content.decode()
    assert says in page
    assert not Invitation.objects.exists()


def test_a_name_is_invited_once_whatever_its_case_and_width(team: Team, root: User) -> None:
    User.objects.create_user("sam")
    for name in ("SAM", "\uff53am", "Sam"):
        with pytest.raises(NotAccepted, match="There is an account sam"):
            invite(name, email="", team=team, lead=False, actor=root, now=timezone.now())


def test_reserved_names_are_given_by_administrators_alone(team: Team, root: User) -> None:
    lea = User.objects.create_user("lea")
    team.members.add(lea)
    team.leads.add(lea)
    for name in ("Admin", "motley", "system"):
        with pytest.raises(NotAccepted, match="Only administrators"):
            invite(name, email="", team=team, lead=False, actor=lea, now=timezone.now())
    assert invite("motley", email="", team=team, lead=False, actor=root, now=timezone.now())[0].username == "motley"


def test_the_link_is_mailed_where_a_mail_server_is_set(admin: Client, team: Team, settings: Any) -> None:
    settings.MOTLEY_EMAIL_URL = "smtp://localhost"
    text = invited(admin, team, email="ada@example.org")
    (sent,) = mail.outbox
    assert sent.to == ["ada@example.org"]
    assert text in sent.body


def test_the_link_is_shown_where_the_mail_server_does_not_answer(admin: Client, team: Team, settings: Any) -> None:
    settings.MOTLEY_EMAIL_URL = "smtp://localhost:9"
    settings.EMAIL_BACKEND, settings.EMAIL_PORT = "django.core.mail.backends.smtp.EmailBackend", 9
    answer = admin.post(FORM, {"username": "ada", "team": team.pk, "email": "ada@example.org"})
    assert "No mail was sent" in answer.content.decode()
    assert secret_in(answer)


def test_staff_without_the_permissions_do_not_invite(team: Team, plain_static: None) -> None:
    client = Client()
    client.force_login(User.objects.create_user("sam", is_staff=True))
    assert client.get(FORM).status_code == 403


def test_members_who_are_no_leads_do_not_invite(team: Team) -> None:
    mia = User.objects.create_user("mia")
    team.members.add(mia)
    with pytest.raises(NotAllowed):
        invite("ada", email="", team=team, lead=False, actor=mia, now=timezone.now())


def test_a_disabled_account_does_not_come_back_by_its_invitation(admin: Client, team: Team) -> None:
    text = invited(admin, team)
    User.objects.filter(username="ada").update(is_active=False)
    assert "no valid invitation" in accept(text).content.decode()
