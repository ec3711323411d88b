"""Login by OpenID Connect, against a provider in this process: who gets in, as whom, and with which teams."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.exceptions import ImproperlyConfigured
from django.test import Client
from pytest_django import Settings

from config.setting_values import is_issuer
from jobs_app.models import Team
from tests.identity_provider import CLIENT, SECRET, STRANGE_KEY, IdentityProvider, identity_provider

ADA = {"sub": "17", "preferred_username": "ada", "email": "ada@example.org", "email_verified": True}


@pytest.fixture
def provider(db: None, settings: Settings, plain_static: None) -> Iterator[IdentityProvider]:
    with identity_provider() as found:
        found.claims = dict(ADA)
        settings.MOTLEY_OIDC_ISSUER, settings.MOTLEY_OIDC_CLIENT_ID = found.issuer, CLIENT
        settings.MOTLEY_OIDC_SECRET, settings.MOTLEY_OIDC_ACCOUNTS = SECRET, "all"
        yield found


def log_in(provider: IdentityProvider, client: Client | None = None, begin: str = "/login/oidc") -> tuple[Client, Any]:
    """A browser that goes to the provider and comes back."""
    client = client or Client()
    sent = client.get(begin)
    assert sent.status_code == 302, sent.content
    back = provider.authorise(sent["Location"])
    return client, client.get(back.removeprefix("http://localhost:8000"))


def user_of(client: Client) -> User | None:
    return User.objects.filter(pk=client.session.get("_auth_user_id")).first()


def test_the_first_login_makes_an_account_and_the_next_finds_it(provider: IdentityProvider) -> None:
    client, answer = log_in(provider, begin="/login/oidc?next=/jobs")
    assert (answer.status_code, answer["Location"]) == (302, "/jobs")
    user = user_of(client)
    assert (user.username, user.email, user.has_usable_password(), user.is_staff) == (
        "ada",
        "ada@example.org",
        False,
        False,
    )
    provider.claims |= {"preferred_username": "ada.l", "email": "ada.l@example.org"}
    assert user_of(log_in(provider)[0]) == user


def test_a_name_that_is_taken_is_never_taken_over(provider: IdentityProvider) -> None:
    User.objects.create_user("ada", "ada@example.com", "a good password")
    assert user_of(log_in(provider)[0]).username == "ada-2"


@pytest.mark.parametrize(
    ("wanted", "named"),
    [("ADA", "ADA-2"), ("\uff41da", "ada-2"), ("root", "root-2"), ("ad\0a", "ada-2"), ("Eve", "Eve")],
)
def test_a_name_is_one_whatever_its_case_and_width(provider: IdentityProvider, wanted: str, named: str) -> None:
    User.objects.create_user("ada", "ada@example.com", "a good password")
    provider.claims |= {"preferred_username": wanted, "given_name": "A\0da", "groups": ["\0", "\ud800"]}
    user = user_of(log_in(provider)[0])
    assert (user.username, user.first_name) == (named, "Ada")


@pytest.mark.parametrize(
    ("columns", "verified", "enters"),
    [({}, True, True), ({}, False, False), ({"is_staff": True}, True, False), ({"email": "x@y.org"}, True, False)],
)
def test_only_an_invited_account_is_found_by_mail_and_only_by_a_verified_one(
    provider: IdentityProvider, settings: Settings, columns: dict[str, Any], verified: bool, enters: bool
) -> None:
    settings.MOTLEY_OIDC_ACCOUNTS = "invited"
    invited = User.objects.create(username="lovelace", **({"email": "Ada@example.org"} | columns))
    provider.claims["email_verified"] = verified
    client, answer = log_in(provider)
    assert user_of(client) == (invited if enters else None)
    assert answer.status_code == (302 if enters else 403)
    assert User.objects.count() == 1


def test_an_account_that_is_not_active_is_refused(provider: IdentityProvider) -> None:
    log_in(provider)
    User.objects.update(is_active=False)
    client, answer = log_in(provider)
    assert (answer.status_code, user_of(client)) == (403, None)


def test_groups_are_teams_and_what_they_granted_is_taken_back_alone(
    provider: IdentityProvider, settings: Settings
) -> None:
    for name in ("vision", "language", "speech"):
        Team.objects.create(name=name)
    settings.MOTLEY_OIDC_ADMIN_GROUP = "gpu-admins"
    provider.claims["groups"] = ["vision", "language", "no such team", "gpu-admins"]
    user = user_of(log_in(provider)[0])
    assert ({team.name for team in user.teams.all()}, user.is_superuser) == ({"vision", "language"}, True)
    user.teams.add(Team.objects.get(name="speech"))  # by hand
    provider.claims["groups"] = ["language"]
    user = user_of(log_in(provider)[0])
    assert ({team.name for team in user.teams.all()}, user.is_staff) == ({"language", "speech"}, False)
    del provider.claims["groups"]
    assert user_of(log_in(provider)[0]).teams.count() == 2


def teams_with(provider: IdentityProvider, *groups: str) -> list[str]:
    """Names of the teams that the person has after a login with these groups."""
    provider.claims["groups"] = list(groups)
    return [team.name for team in user_of(log_in(provider)[0]).teams.all()]


def test_a_team_that_is_renamed_is_kept_by_its_group_and_taken_back_without_it(
    provider: IdentityProvider, settings: Settings
) -> None:
    vision = Team.objects.create(name="vision")
    settings.MOTLEY_OIDC_TEAMS = {"cv-people": "vision"}
    assert teams_with(provider, "cv-people") == ["vision"]
    vision.name = "sight"
    vision.save()
    settings.MOTLEY_OIDC_TEAMS = {"cv-people": "sight"}
    assert teams_with(provider, "cv-people") == ["sight"]
    assert teams_with(provider) == []


def test_a_new_team_with_the_name_that_another_had_takes_the_place_of_that_one(provider: IdentityProvider) -> None:
    Team.objects.create(name="vision")
    assert teams_with(provider, "vision") == ["vision"]
    Team.objects.update(name="sight")
    Team.objects.create(name="vision")
    assert teams_with(provider, "vision") == ["vision"]


def test_a_mapping_names_the_teams_of_groups(provider: IdentityProvider, settings: Settings) -> None:
    Team.objects.create(name="vision")
    Team.objects.create(name="language")
    settings.MOTLEY_OIDC_TEAMS = {"cv-people": "vision"}
    provider.claims["groups"] = ["cv-people", "language"]
    assert [team.name for team in user_of(log_in(provider)[0]).teams.all()] == ["vision"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"of_token": {"iss": "https://evil.example"}},
        {"of_token": {"aud": "another"}},
        {"of_token": {"exp": 1}},
        {"key": STRANGE_KEY},
        {"userinfo_sub": "18"},
        {"of_token": {"nonce": "of another request"}},
        {"of_token": {"nonce": None}},
        {"subjectless": True},
        {"of_token": {"sub": ""}, "userinfo_sub": ""},
        {"claims": ADA | {"sub": "s" * 3000}},
        {"claims": ADA | {"sub": "17\0"}},
        {"claims": ADA | {"sub": 17}},
        {"algorithm": "HS256"},
        {"header": {}},
    ],
)
def test_a_token_of_another_issuer_audience_time_key_request_or_subject_lets_nobody_in(
    provider: IdentityProvider, wrong: dict[str, Any]
) -> None:
    for name, value in wrong.items():
        setattr(provider, name, value)
    client, answer = log_in(provider)
    assert (answer.status_code, user_of(client), User.objects.count()) == (401, None, 0)


def test_an_answer_that_another_browser_began_lets_nobody_in(provider: IdentityProvider) -> None:
    began = Client().get("/login/oidc")
    back = provider.authorise(began["Location"]).removeprefix("http://localhost:8000")
    victim = Client()
    assert (victim.get(back).status_code, user_of(victim)) == (401, None)


def test_it_leads_to_no_other_site(provider: IdentityProvider) -> None:
    assert log_in(provider, begin="/login/oidc?next=https://evil.example/")[1]["Location"] == "/"


def test_the_button_is_there_where_a_provider_is_configured(provider: IdentityProvider, settings: Settings) -> None:
    assert "/login/oidc?next=/jobs" in Client().get("/login/?next=/jobs").content.decode()
    settings.MOTLEY_OIDC_ISSUER = ""
    assert "/login/oidc" not in Client().get("/login/").content.decode()
    assert Client().get("/login/oidc").status_code == 404


def test_an_issuer_without_tls_is_refused() -> None:
    is_issuer("https://id.example.org")
    with pytest.raises(ImproperlyConfigured, match="https://"):
        is_issuer("http://id.example.org")
