"""First sign-on of an identity: the account keeps nothing that whoever invited the person could have set."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest
from allauth.socialaccount.models import SocialAccount
from django.contrib import admin
from django.contrib.auth.admin import UserAdmin
from django.contrib.auth.models import User
from django.contrib.messages import get_messages
from django.db import transaction
from django.http import HttpResponse
from django.test import Client, RequestFactory
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries, Settings
from rest_framework.test import APIClient

from audit_app.models import AuditEntry
from config.middleware import LoginsEnded
from jobs_app.errors import JobsError, LoginEnded, NotAccepted, NotAllowed
from jobs_app.identity_links import LINKED, clear_for_link
from jobs_app.invitations import accept_invitation, find_invitation, invite
from jobs_app.lifecycle.commands import hold_job, release_job
from jobs_app.models import ApiToken, Invitation, Job, NotificationTarget, RecurringJob, Secret, Sweep, Team
from jobs_app.notifications.targets import add_target
from jobs_app.password_forms import OwnPasswordForm
from jobs_app.secrets import set_secret
from jobs_app.submission.batch import admitted_batch
from jobs_app.submission.submit import admitted, enter, enter_batch, submit_job
from jobs_app.tokens import issue_token
from scheduler_app.recurring_jobs.editing import (
    add_recurring_job,
    admitted_recurring_job,
    change_recurring_job,
    pause_recurring_job,
    resume_recurring_job,
)
from scheduler_app.sweeps.admission import admitted_sweep
from scheduler_app.sweeps.editing import start_sweep
from tests.identity_provider import CLIENT, SECRET, IdentityProvider, identity_provider
from tests.service_lab import Lab
from tests.two_connections import apart, only_there, wait_for_our_lock
from web.pages.account import ChangePassword

PASSWORD = "violet-harbour-42"
VICTOR = {"sub": "23", "preferred_username": "victor", "email": "victor@example.org", "email_verified": True}


@pytest.fixture
def provider(db: None, settings: Settings, plain_static: None) -> Iterator[IdentityProvider]:
    with identity_provider() as found:
        found.claims = VICTOR | {"groups": ["gpu-admins"]}
        settings.MOTLEY_OIDC_ISSUER, settings.MOTLEY_OIDC_CLIENT_ID = found.issuer, CLIENT
        settings.MOTLEY_OIDC_SECRET, settings.MOTLEY_OIDC_ADMIN_GROUP = SECRET, "gpu-admins"
        yield found


@pytest.fixture
def team(db: None) -> Team:
    return Team.objects.create(name="vision")


@pytest.fixture
def lead(team: Team) -> User:
    lead = User.objects.create_user("lea")
    team.members.add(lead)
    team.leads.add(lead)
    return lead


def sign_on(provider: IdentityProvider) -> tuple[User | None, Any]:
    """The account that the browser of the person has after it was at the provider, and the answer."""
    client = Client()
    back = provider.authorise(client.get("/login/oidc")["Location"])
    answer = client.get(back.removeprefix("http://localhost:8000"))
    return User.objects.filter(pk=client.session.get("_auth_user_id")).first(), answer


def invited(team: Team, actor: User, *, email: str = VICTOR["email"]) -> tuple[User, str]:  # type: ignore[assignment]
    return invite("vic", email=email, team=team, lead=False, actor=actor, now=timezone.now())


def accepted(text: str) -> Client:
    """A browser that has opened the link, chosen the password and logged in."""
    invitation = find_invitation(text)
    assert invitation
    assert accept_invitation(invitation, PASSWORD, now=timezone.now())
    client = Client()
    assert logs_in(client)
    return client


def logs_in(client: Client) -> bool:
    return client.post("/login/", {"username": "vic", "password": PASSWORD}).status_code == 302


def enters(client: Client) -> bool:
    return client.get("/jobs").status_code == 200


def test_who_opens_the_invitation_of_another_is_out_when_that_person_comes(
    provider: IdentityProvider, team: Team, lead: User
) -> None:
    user, text = invited(team, lead)
    browser = accepted(text)
    user.refresh_from_db()
    token = issue_token(user, name="a", scope=ApiToken.Scope.SUBMIT)
    set_secret("HF_TOKEN", "a value of the lead", team=None, actor=user)
    NotificationTarget.objects.create(user=user, kind="webhook", shown="https://a.example", encrypted="a")
    recurring = RecurringJob.objects.create(owner=user, team=team, name="a", spec={}, schedule="0 3 * * *")
    assert enters(browser)
    found, answer = sign_on(provider)
    assert found == user
    assert found.is_superuser, "by the group, at the provider"
    assert not logs_in(Client())
    assert not enters(browser)
    assert APIClient(HTTP_AUTHORIZATION=f"Bearer {token}").get("/api/v1/me").status_code == 401
    assert (Secret.objects.count(), NotificationTarget.objects.count()) == (0, 0)
    recurring.refresh_from_db()
    assert recurring.paused_at is not None, "it would run in the name of the person"
    (entry,) = AuditEntry.objects.filter(action="person.link")
    ended = "the password, 1 API token, targets of notifications, secrets, recurring jobs"
    assert (entry.actor, entry.message) == (user, f"ended: {ended}")
    assert ended in str(*get_messages(answer.wsgi_request))


def test_a_request_that_began_before_the_link_makes_no_token_after_it(
    provider: IdentityProvider, team: Team, lead: User
) -> None:
    _, text = invited(team, lead)
    accepted(text)
    asks = User.objects.get(username="vic")  # as the browser of the lead was authenticated
    assert sign_on(provider)[0] == asks
    with pytest.raises(NotAllowed, match="ended in the meantime"):
        issue_token(asks, name="late", scope=ApiToken.Scope.ADMIN)


def test_a_request_that_began_before_the_link_leaves_nothing_in_the_account_after_it(
    provider: IdentityProvider, team: Team, lead: User, lab: Lab
) -> None:
    """The browser of the lead sends them while the person signs on: they were admitted with the secrets of before."""
    lab.node("n1")
    user, text = invited(team, lead)
    accepted(text)
    asks = User.objects.get(pk=user.pk)
    set_secret("HF_TOKEN", "a value of the lead", team=None, actor=asks)
    spec = {"name": "a", "team": team.name, "command": "env | base64", "gpus": 1, "secrets": ["HF_TOKEN"]}
    now = timezone.now()
    asked = {"schedule": "0 3 * * *", "spec": spec}
    add_recurring_job(recurring := admitted_recurring_job(asked | {"name": "b"}, owner=asks, now=now))
    one, many = admitted(spec, asks), admitted_batch({"jobs": [spec]}, asks)
    other = admitted_recurring_job(asked | {"name": "c"}, owner=asks, now=now)
    trials = {"name": "d", "metric": {"name": "loss"}, "parameters": {"lr": {"values": [1, 2]}}}
    sweep = admitted_sweep(trials | {"method": "grid", "spec": spec | {"command": "env {lr}"}}, owner=asks, now=now)
    assert sign_on(provider)[0] == asks
    acts: list[Callable[[], object]] = [
        lambda: enter(one),
        lambda: enter_batch(many),
        lambda: add_recurring_job(other),
        lambda: change_recurring_job(recurring, {"schedule": "* * * * *"}, actor=asks, now=now),
        lambda: resume_recurring_job(recurring, actor=asks, now=now),
        lambda: start_sweep(sweep),
        lambda: set_secret("WANDB_API_KEY", "a value of the lead", team=None, actor=asks),
        lambda: add_target(NotificationTarget.Kind.MAIL, "lea@example.org", ["job_failed"], team=None, actor=asks),
    ]
    for act in acts:
        with pytest.raises(NotAllowed, match="ended in the meantime"), transaction.atomic():
            act()
    assert [model.objects.count() for model in (Job, Sweep, Secret, NotificationTarget)] == [0, 0, 0, 0]
    recurring = RecurringJob.objects.get()
    assert (recurring.paused_because, recurring.schedule) == (RecurringJob.OWNER_LINKED, "0 3 * * *")


def test_a_password_change_that_began_before_the_link_does_not_give_the_account_back(
    provider: IdentityProvider, team: Team, lead: User
) -> None:
    user, text = invited(team, lead)
    browser = accepted(text)
    new = {"old_password": PASSWORD, "new_password1": "amber-harbour-43", "new_password2": "amber-harbour-43"}
    request = RequestFactory().post("/password", new)
    request.user, request.session = User.objects.get(pk=user.pk), browser.session  # as it was authenticated
    request._dont_enforce_csrf_checks = True  # type: ignore[attr-defined]  # as the test client does
    assert sign_on(provider)[0] == user
    with pytest.raises(NotAllowed, match="ended in the meantime"):
        ChangePassword.as_view()(request)
    user.refresh_from_db()
    assert not user.has_usable_password()
    assert not enters(browser)
    assert not AuditEntry.objects.filter(action="password.change").exists()


def test_a_password_that_was_changed_meanwhile_stops_no_request_but_another_change_and_new_tokens(team: Team) -> None:
    """Requests by API token go on, and so does the session in which it was changed, but for what would outlive it."""
    user = User.objects.create_user("vic", password=PASSWORD)
    asks = User.objects.get(pk=user.pk)
    issue_token(asks, name="first", scope=ApiToken.Scope.SUBMIT)
    first = ApiToken.objects.get(name="first")
    new = {"old_password": PASSWORD, "new_password1": "amber-harbour-43", "new_password2": "amber-harbour-43"}
    form = OwnPasswordForm(User.objects.get(pk=user.pk), new)
    assert form.is_valid(), form.errors
    user.set_password("quiet-harbour-44")
    user.save()
    set_secret("HF_TOKEN", "a value of Victor", team=None, actor=asks)
    issue_token(asks, name="by a token", scope=ApiToken.Scope.READ, made_by=first)
    with pytest.raises(NotAllowed, match="ended in the meantime"):
        issue_token(asks, name="by a session", scope=ApiToken.Scope.READ)
    with pytest.raises(NotAllowed, match="ended in the meantime"):
        form.save()
    User.objects.update(is_active=False)
    with pytest.raises(NotAllowed, match="ended in the meantime"):
        issue_token(asks, name="by a token, late", scope=ApiToken.Scope.READ, made_by=first)


def test_an_account_that_is_edited_in_the_administration_during_the_link_does_not_get_its_password_back(
    provider: IdentityProvider, team: Team, lead: User
) -> None:
    user, text = invited(team, lead)
    accepted(text)
    request, people = RequestFactory().post("/"), admin.site._registry[User]
    request.user = User.objects.create_superuser("root")
    edited = people.get_object(request, str(user.pk))
    assert isinstance(edited, User)
    joined = {"date_joined_0": "2026-01-01", "date_joined_1": "00:00:00"}
    told = {"username": "vic", "email": user.email, "first_name": "Vic", "is_active": True}
    form = people.get_form(request, edited, change=True)(told | joined, instance=edited)
    assert form.is_valid(), form.errors
    assert sign_on(provider)[0] == user
    people.save_model(request, form.save(commit=False), form, change=True)
    user.refresh_from_db()
    assert (user.first_name, user.has_usable_password(), user.is_superuser) == ("Vic", False, True)


def test_a_password_that_an_administrator_sets_leaves_the_rest_of_the_account_as_it_is_by_then(team: Team) -> None:
    user = User.objects.create_user("vic")
    people = admin.site._registry[User]
    assert isinstance(people, UserAdmin)
    new = {"password1": "amber-harbour-43", "password2": "amber-harbour-43", "usable_password": "true"}
    form = people.change_password_form(User.objects.get(pk=user.pk), new)
    assert form.is_valid(), form.errors
    User.objects.update(is_active=False)
    form.save()
    user.refresh_from_db()
    assert (user.is_active, user.check_password("amber-harbour-43")) == (False, True)


def test_the_page_that_was_asked_for_with_an_ended_login_leads_to_another() -> None:
    ended = LoginsEnded(lambda _: HttpResponse())
    page, rest = (RequestFactory().post(path) for path in ("/jobs/new", "/api/v1/jobs"))
    assert getattr(ended.process_exception(page, LoginEnded()), "url", None) == "/"
    assert ended.process_exception(rest, LoginEnded()) is None


def test_nothing_that_was_prepared_in_the_account_gets_a_secret_that_the_person_sets_later(
    provider: IdentityProvider, team: Team, lead: User, lab: Lab
) -> None:
    """A lead opens the invitation, prepares a job that is held and a recurring job that is paused, and waits."""
    lab.node("n1")
    user, text = invited(team, lead)
    accepted(text)
    user.refresh_from_db()
    set_secret("HF_TOKEN", "a value of the lead", team=None, actor=user)
    spec = {"name": "a", "team": team.name, "command": "env | base64", "gpus": 1, "secrets": ["HF_TOKEN"]}
    job, plain = submit_job(spec, owner=user), submit_job(spec | {"secrets": []}, owner=user)
    hold_job(job, actor=user)
    asked = {"name": "a", "schedule": "0 3 * * *", "spec": spec}
    add_recurring_job(recurring := admitted_recurring_job(asked, owner=user, now=timezone.now()))
    pause_recurring_job(recurring, actor=user, now=timezone.now())
    sign_on(provider)
    user.refresh_from_db()
    set_secret("HF_TOKEN", "the value of Victor", team=None, actor=user)
    with suppress(JobsError):
        release_job(job, actor=lead)
    by_lead = APIClient()
    by_lead.force_authenticate(lead)
    assert by_lead.post(f"/api/v1/recurring-jobs/{recurring.pk}/run").status_code == 409
    set_secret("HF_TOKEN", "a value of the lead", team=None, actor=lead)
    assert by_lead.post(f"/api/v1/recurring-jobs/{recurring.pk}/resume").json()["owner"] == "lea"
    assert by_lead.post(f"/api/v1/recurring-jobs/{recurring.pk}/run").json()["owner"] == "lea"
    assert list(Job.objects.unfinished().filter(owner=user)) == [plain]


def test_tokens_are_revoked_in_the_order_in_which_one_alone_is_with_those_that_it_made(team: Team, lead: User) -> None:
    """A token that is revoked at the same time waits for the link, or the link for it, and neither for ever."""
    user, _ = invited(team, lead)
    first = None
    for name in ("first", "second", "third"):
        issue_token(user, name=name, scope=ApiToken.Scope.SUBMIT, made_by=first)
        first = first or ApiToken.objects.get(name="first")
    clear_for_link(user)
    revoked = AuditEntry.objects.filter(action="token.revoke").order_by("pk").values_list("target", flat=True)
    assert list(revoked) == ["first", "second", "third"]


def test_many_jobs_that_were_prepared_do_not_keep_the_person_out(
    team: Team, lead: User, lab: Lab, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    """The browser waits for the sign-on, and on SQLite everybody for its lock: one by one an array takes minutes."""
    lab.node("n1")
    user, _ = invited(team, lead)
    set_secret("HF_TOKEN", "a value of the lead", team=None, actor=user)
    spec = {"name": "a", "team": team.name, "command": "x", "gpus": 1, "secrets": ["HF_TOKEN"], "array": "0-99"}
    submit_job(spec, owner=user)
    with django_assert_max_num_queries(50):
        gone = clear_for_link(user)
    assert "jobs with secrets" in gone
    assert [*Job.objects.order_by().values_list("state", "message").distinct()] == [("cancelled", LINKED)]


def test_an_invitation_that_was_not_accepted_ends_with_the_link(
    provider: IdentityProvider, team: Team, lead: User
) -> None:
    _, text = invited(team, lead)
    assert sign_on(provider)[0]
    assert find_invitation(text) is None
    with pytest.raises(NotAccepted, match="There is an account vic"):
        invited(team, lead)


def test_an_invitation_that_outlived_the_link_is_neither_accepted_nor_made_anew(team: Team, lead: User) -> None:
    user, text = invited(team, lead)
    opened = find_invitation(text)
    assert opened
    SocialAccount.objects.create(user=user, provider="https://id.example.org", uid="23")
    assert find_invitation(text) is None
    assert not accept_invitation(opened, PASSWORD, now=timezone.now())
    with pytest.raises(NotAccepted, match="There is an account vic"):
        invited(team, lead)


@only_there
@pytest.mark.django_db(transaction=True)
def test_an_invitation_that_is_made_anew_during_the_link_is_none_after_it(team: Team, lead: User) -> None:
    user, _ = invited(team, lead)
    with ThreadPoolExecutor(1) as threads, transaction.atomic():
        clear_for_link(User.objects.select_for_update(no_key=True).get(pk=user.pk))
        SocialAccount.objects.create(user=user, provider="https://id.example.org", uid="23")
        again = threads.submit(apart, lambda: invited(team, lead))
        wait_for_our_lock(again)
    with pytest.raises(NotAccepted, match="There is an account vic"):
        again.result()
    assert not Invitation.objects.exists()


@only_there
@pytest.mark.django_db(transaction=True)
def test_an_invitation_that_is_accepted_during_the_link_neither_stops_it_nor_sets_a_password(
    team: Team, lead: User
) -> None:
    user, text = invited(team, lead)
    opened = find_invitation(text)
    assert opened
    with ThreadPoolExecutor(1) as threads, transaction.atomic():
        linked = User.objects.select_for_update(no_key=True).get(pk=user.pk)
        late = threads.submit(apart, lambda: accept_invitation(opened, PASSWORD, now=timezone.now()))
        wait_for_our_lock(late)
        clear_for_link(linked)
    assert not late.result()
    assert not User.objects.get(pk=user.pk).has_usable_password()


def test_an_account_of_an_administrator_keeps_its_secrets(provider: IdentityProvider, team: Team) -> None:
    user, text = invited(team, User.objects.create_superuser("root"))
    browser = accepted(text)
    user.refresh_from_db()
    set_secret("HF_TOKEN", "a value of Victor", team=None, actor=user)
    assert sign_on(provider)[0] == user
    assert (Secret.objects.count(), enters(browser)) == (1, False)


def test_what_comes_after_the_link_stays(provider: IdentityProvider, team: Team, lead: User) -> None:
    user, _ = invited(team, lead)
    sign_on(provider)
    user.refresh_from_db()
    token = issue_token(user, name="mine", scope=ApiToken.Scope.READ)
    sign_on(provider)
    assert APIClient(HTTP_AUTHORIZATION=f"Bearer {token}").get("/api/v1/me").status_code == 200
    assert AuditEntry.objects.filter(action="person.link").count() == 1


def test_an_identity_that_takes_the_place_of_another_finds_nothing_of_it(
    provider: IdentityProvider, team: Team, lead: User
) -> None:
    user, _ = invited(team, lead)
    sign_on(provider)
    user.refresh_from_db()
    token = issue_token(user, name="of the first", scope=ApiToken.Scope.READ)
    User.objects.update(is_staff=False, is_superuser=False)
    SocialAccount.objects.all().delete()
    provider.claims |= {"sub": "24", "groups": []}
    assert sign_on(provider)[0] == user
    assert APIClient(HTTP_AUTHORIZATION=f"Bearer {token}").get("/api/v1/me").status_code == 401


@pytest.mark.parametrize("columns", [{}, {"is_staff": True}, {"is_active": False}])
def test_of_two_accounts_with_one_address_neither_is_linked(
    provider: IdentityProvider, team: Team, lead: User, columns: dict[str, Any]
) -> None:
    user, _ = invited(team, lead, email="")
    User.objects.filter(pk=user.pk).update(email=VICTOR["email"])
    User.objects.create_user("victor", "Victor@example.org", **columns)
    found, answer = sign_on(provider)
    assert (found, answer.status_code) == (None, 403)


def test_an_address_that_an_account_has_is_given_to_no_second_one(team: Team, lead: User) -> None:
    User.objects.create_user("victor", "Victor@example.org")
    with pytest.raises(NotAccepted, match="has this mail address"):
        invited(team, lead)
    assert not Invitation.objects.exists()


def test_an_address_is_changed_neither_by_an_invitation_made_anew_nor_by_its_owner(team: Team, lead: User) -> None:
    user, text = invited(team, lead, email="vic@example.org")
    assert invited(team, lead, email="another@example.org")[1] != text
    client = APIClient()
    client.force_authenticate(user)
    assert client.patch("/api/v1/me", {"email": "another@example.org"}).status_code == 405
    user.refresh_from_db()
    assert user.email == "vic@example.org"
