"""Callers above their rate are told how long to wait; while the counter is away, all are served."""

import logging
from collections.abc import Iterator
from ipaddress import ip_network

import pytest
from django.core.cache import cache, caches
from django.test import Client
from rest_framework.test import APIClient

from tests.rest_callers import Scope, caller
from tests.service_lab import Lab
from web.rest.throttling import Counter

ROUTE = "/api/v1/jobs"


@pytest.fixture(autouse=True)
def _empty_counts() -> Iterator[None]:
    cache.clear()
    yield
    cache.clear()


def codes(client: Client, address: str = ROUTE, *, times: int = 3, **more: str) -> list[int]:
    return [client.get(address, **more).status_code for _ in range(times)]


def test_a_user_has_so_many_requests(ada: APIClient, settings) -> None:
    settings.MOTLEY_REST_RATE = "2/d"
    assert codes(ada) == [200, 200, 429]


def test_a_second_token_of_the_same_user_does_not_help(cluster: Lab, ada: APIClient, settings) -> None:
    settings.MOTLEY_REST_RATE = "2/d"
    codes(ada, times=2)
    assert caller(cluster.user(), Scope.READ).get(ROUTE).status_code == 429


def test_another_user_is_not_held_up(cluster: Lab, ada: APIClient, settings) -> None:
    settings.MOTLEY_REST_RATE = "2/d"
    codes(ada)
    assert caller(cluster.user("bob")).get(ROUTE).status_code == 200


def test_the_refusal_is_a_problem_that_says_how_long_to_wait(ada: APIClient, settings) -> None:
    settings.MOTLEY_REST_RATE = "1/d"
    ada.get(ROUTE)
    answer = ada.get(ROUTE)
    assert (answer.json()["code"], answer["Content-Type"]) == ("throttled", "application/problem+json")
    assert 0 < int(answer["Retry-After"]) <= 86_400


def test_callers_without_a_token_are_counted_by_address(cluster: Lab, api: APIClient, settings) -> None:
    settings.MOTLEY_ANONYMOUS_RATE = "2/d"
    assert codes(api, REMOTE_ADDR="10.0.0.1") == [401, 401, 429]
    assert codes(api, REMOTE_ADDR="10.0.0.2", times=1) == [401]


def test_so_are_unknown_tokens(cluster: Lab, settings) -> None:
    settings.MOTLEY_ANONYMOUS_RATE = "2/d"
    guesses = [Client(headers={"authorization": f"Bearer mot_{n}"}).get(ROUTE) for n in range(3)]
    assert [answer.status_code for answer in guesses] == [401, 401, 429]


def test_callers_with_a_token_do_not_wait_for_those_without(ada: APIClient, api: APIClient, settings) -> None:
    settings.MOTLEY_ANONYMOUS_RATE = "1/d"
    codes(api)
    assert ada.get(ROUTE).status_code == 200


def test_a_person_gets_a_page(cluster: Lab, api: APIClient, settings) -> None:
    settings.MOTLEY_ANONYMOUS_RATE = "1/d"
    api.get("/login/")
    answer = api.get("/login/")
    assert (answer.status_code, answer["Content-Type"]) == (429, "text/html; charset=utf-8")
    assert answer["Retry-After"] in answer.content.decode()


def test_passwords_are_counted_by_address_for_all_users_together(cluster: Lab, api: APIClient, settings) -> None:
    settings.MOTLEY_LOGIN_RATE = "2/d"
    tries = [api.post("/login/", {"username": f"u{n}", "password": "x"}, format="multipart") for n in range(3)]
    assert [answer.status_code for answer in tries] == [200, 200, 429]


def test_a_header_that_means_nothing_to_pages_is_no_way_round(cluster: Lab, api: APIClient, settings) -> None:
    settings.MOTLEY_ANONYMOUS_RATE = "1/d"
    answers = [api.get("/login/", headers={"authorization": "Bearer x"}) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [200, 429]


def test_a_proxy_may_say_whose_address_it_is(cluster: Lab, api: APIClient, settings) -> None:
    settings.MOTLEY_ANONYMOUS_RATE, settings.MOTLEY_ADDRESS_HEADER = "1/d", "X-Real-IP"
    settings.MOTLEY_PROXIES = [ip_network("127.0.0.0/8")]
    one, two = ({"x-real-ip": address} for address in ("192.0.2.1", "192.0.2.2"))
    assert [api.get(ROUTE, headers=who).status_code for who in (one, one, two)] == [401, 429, 401]


@pytest.mark.parametrize(
    "connection",
    [{"REMOTE_ADDR": "127.0.0.1"}, {"REMOTE_ADDR": "", "HTTP_MOTLEY_PEER": "127.0.0.1"}],
)
def test_who_reaches_the_service_past_the_proxy_cannot_choose_its_address(
    cluster: Lab, api: APIClient, settings, connection: dict[str, str]
) -> None:
    settings.MOTLEY_ANONYMOUS_RATE, settings.MOTLEY_ADDRESS_HEADER = "1/d", "X-Real-IP"
    answers = [api.get(ROUTE, **connection, HTTP_X_REAL_IP=f"192.0.2.{n}").status_code for n in range(2)]
    assert answers == [401, 429]


def test_a_proxy_on_a_socket_in_the_file_system_is_trusted(cluster: Lab, api: APIClient, settings) -> None:
    settings.MOTLEY_ANONYMOUS_RATE, settings.MOTLEY_ADDRESS_HEADER = "1/d", "X-Real-IP"
    by_file = {"REMOTE_ADDR": "", "HTTP_MOTLEY_PEER": "unix"}
    answers = [api.get(ROUTE, **by_file, HTTP_X_REAL_IP=f"192.0.2.{n}").status_code for n in range(2)]
    assert answers == [401, 401]


def test_a_caller_with_an_address_does_not_pass_for_a_file(cluster: Lab, api: APIClient, settings) -> None:
    settings.MOTLEY_ANONYMOUS_RATE, settings.MOTLEY_ADDRESS_HEADER = "1/d", "X-Real-IP"
    told = [{"HTTP_MOTLEY_PEER": "unix", "HTTP_X_REAL_IP": f"192.0.2.{n}"} for n in range(2)]
    assert [api.get(ROUTE, **headers).status_code for headers in told] == [401, 429]


def test_without_a_proxy_a_caller_cannot_choose_its_address(cluster: Lab, api: APIClient, settings) -> None:
    settings.MOTLEY_ANONYMOUS_RATE = "1/d"
    one, two = ({"x-real-ip": address, "x-forwarded-for": address} for address in ("192.0.2.1", "192.0.2.2"))
    assert [api.get(ROUTE, headers=who).status_code for who in (one, two)] == [401, 429]


@pytest.fixture
def _dead_redis(settings) -> Iterator[None]:
    """No server listens on port 1."""
    settings.CACHES = {
        "default": {
            "BACKEND": "django.core.cache.backends.redis.RedisCache",
            "LOCATION": "redis://127.0.0.1:1/0",
            "OPTIONS": {"socket_connect_timeout": 0.5},
        }
    }
    yield
    caches.close_all()


@pytest.mark.usefixtures("_dead_redis")
def test_without_its_redis_all_are_served_and_it_is_logged_once(
    ada: APIClient, api: APIClient, settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    settings.MOTLEY_REST_RATE = settings.MOTLEY_ANONYMOUS_RATE = "1/d"
    monkeypatch.setattr("web.rest.throttling.counter", Counter())
    monkeypatch.setattr("config.middleware.counter", Counter())
    with caplog.at_level(logging.WARNING, logger="web.rest.throttling"):
        assert codes(ada) == [200, 200, 200]
    assert codes(api) == [401, 401, 401]
    assert [record.name for record in caplog.records].count("web.rest.throttling") == 2  # one of each counter
