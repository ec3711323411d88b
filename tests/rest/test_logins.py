"""Guessing passwords is slow on both login pages; logins and failed logins are on the audit list."""

import pytest
from django.contrib.auth.models import User
from django.test import Client

from audit_app.models import Action, AuditEntry
from tests.service_lab import Lab

LOGIN_PAGES = ["/login/", "/admin/login/"]
RIGHT, WRONG = "a right password", "a wrong password"


@pytest.fixture
def eve(cluster: Lab) -> User:
    user = cluster.user("eve", staff=True)
    user.set_password(RIGHT)
    user.save()
    return user


@pytest.fixture
def browser(eve: User) -> Client:
    return Client()


def log_in(browser: Client, password: str, *, page: str = "/login/", name: str = "eve", address: str = "10.0.0.1"):
    return browser.post(page, {"username": name, "password": password}, REMOTE_ADDR=address)


def fail(browser: Client, times: int, **how: str) -> None:
    for _ in range(times):
        log_in(browser, WRONG, **how)


def listed() -> list[tuple[str, str, str]]:
    return list(
        AuditEntry.objects.filter(action__startswith="log").order_by("id").values_list("action", "target", "door")
    )


@pytest.mark.parametrize("page", LOGIN_PAGES)
def test_the_right_password_lets_in(browser: Client, page: str) -> None:
    assert log_in(browser, RIGHT, page=page).status_code == 302


@pytest.mark.parametrize("page", LOGIN_PAGES)
def test_after_five_wrong_ones_even_the_right_one_waits(browser: Client, page: str) -> None:
    fail(browser, 5, page=page)
    answer = log_in(browser, RIGHT, page=page)
    assert answer.status_code == 429
    assert 0 < int(answer["Retry-After"]) <= 900
    assert "Try again in 15 minutes" in answer.content.decode()


def test_the_fifth_wrong_one_says_so_already(browser: Client) -> None:
    fail(browser, 4)
    assert log_in(browser, WRONG).status_code == 429


def test_a_lockout_holds_at_the_other_door_too(browser: Client) -> None:
    fail(browser, 5)
    assert log_in(browser, RIGHT, page="/admin/login/").status_code == 429


def test_another_address_is_not_locked_out(browser: Client) -> None:
    fail(browser, 5)
    assert log_in(browser, RIGHT, address="10.0.0.2").status_code == 302


def test_wrong_ones_from_many_addresses_lock_the_name_out_everywhere(browser: Client, settings) -> None:
    settings.MOTLEY_LOGIN_FAILURES = 10
    fail(browser, 5, address="10.0.9.1")
    fail(browser, 5, address="10.0.9.2")
    answer = log_in(browser, RIGHT, address="10.0.9.3")
    assert answer.status_code == 429
    assert 0 < int(answer["Retry-After"]) <= 900


def test_one_address_alone_locks_nobody_else_out(browser: Client, settings) -> None:
    settings.MOTLEY_LOGIN_FAILURES = 10
    fail(browser, 20, address="10.0.9.1")
    assert log_in(browser, RIGHT, address="10.0.9.2").status_code == 302


def test_four_wrong_ones_are_forgotten_with_the_right_one(browser: Client) -> None:
    fail(browser, 4)
    log_in(browser, RIGHT)
    fail(browser, 4)
    assert log_in(browser, RIGHT).status_code == 302


def test_trying_on_does_not_make_the_wait_longer(browser: Client) -> None:
    fail(browser, 5)
    first = int(log_in(browser, WRONG)["Retry-After"])
    fail(browser, 3)
    assert int(log_in(browser, WRONG)["Retry-After"]) <= first


def test_coming_and_going_are_on_the_list(browser: Client) -> None:
    log_in(browser, RIGHT)
    browser.post("/logout/")
    assert listed() == [("login", "eve", "page"), ("logout", "eve", "page")]


def test_the_list_tells_the_door(browser: Client) -> None:
    log_in(browser, RIGHT, page="/admin/login/")
    assert listed() == [("login", "eve", "admin")]


def test_a_lockout_is_listed_once_however_long_they_try(browser: Client) -> None:
    fail(browser, 9)
    assert [action for action, _, _ in listed()] == [Action.LOGIN_FAILED] * 4 + [Action.LOGIN_LOCKED]
    assert AuditEntry.objects.filter(action=Action.LOGIN_LOCKED).get().message == "from 10.0.0.1"


def test_a_password_that_was_typed_as_the_name_is_not_listed(browser: Client) -> None:
    log_in(browser, WRONG, name="correct horse battery staple")
    assert listed() == [("login.failed", "an unknown name", "page")]


def test_entries_have_the_id_of_their_request(browser: Client) -> None:
    browser.post("/login/", {"username": "eve", "password": RIGHT}, headers={"x-request-id": "r1"})
    assert AuditEntry.objects.get(action="login").request_id == "r1"
