"""Every answer has an id, and so have its problem, its audit entries and its lines in the log."""

import pytest
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.urls import include, path
from rest_framework.decorators import api_view
from rest_framework.request import Request
from rest_framework.test import APIClient

from tests.service_lab import Lab

ANSWERED = ["/", "/login/", "/no-such-page", "/api/v1/jobs", "/api/v1/no-such-route", "/api/nowhere", "/admin/login/"]


@pytest.mark.parametrize("address", ANSWERED)
def test_every_answer_has_an_id(db: None, api: APIClient, address: str) -> None:
    assert len(api.get(address)["X-Request-ID"]) == 32


@pytest.mark.parametrize("address", ANSWERED)
def test_the_callers_own_id_comes_back(db: None, api: APIClient, address: str) -> None:
    assert api.get(address, headers={"x-request-id": "nightly-42.a_b"})["X-Request-ID"] == "nightly-42.a_b"


@pytest.mark.parametrize("given", ["", "x" * 65, "two words", "naïve", "a;b", "<script>"])
def test_what_is_no_id_is_replaced(db: None, api: APIClient, given: str) -> None:
    answer = api.get("/api/v1/jobs", headers={"x-request-id": given})
    assert answer["X-Request-ID"] != given
    assert len(answer["X-Request-ID"]) == 32


def test_two_requests_have_two_ids(db: None, api: APIClient) -> None:
    assert api.get("/api/v1/jobs")["X-Request-ID"] != api.get("/api/v1/jobs")["X-Request-ID"]


@pytest.mark.parametrize("address", ["/api/v1/jobs", "/api/v1/no-such-route", "/api/nowhere", "/api/"])
def test_a_problem_names_its_request(db: None, api: APIClient, address: str) -> None:
    answer = api.get(address, headers={"x-request-id": "r1"})
    assert answer["Content-Type"] == "application/problem+json"
    assert answer.json()["request_id"] == "r1"


# -- what breaks -------------------------------------------------------------------------------------------------


@api_view(["GET"])
def _breaks_in_rest(request: Request) -> HttpResponse:
    raise RuntimeError("the password is swordfish")


def _breaks_in_a_page(request: HttpRequest) -> HttpResponse:
    raise RuntimeError("the password is swordfish")


urlpatterns = [
    path("api/v1/breaks", _breaks_in_rest),
    path("breaks", _breaks_in_a_page),
    path("", include("config.urls")),
]
handler500 = "config.problems.broken"


@pytest.mark.urls(__name__)
def test_what_breaks_in_rest_is_a_problem_with_an_id_and_nothing_inside(cluster: Lab, api: APIClient) -> None:
    api.raise_request_exception = False
    api.force_authenticate(cluster.user())
    answer = api.get("/api/v1/breaks", headers={"x-request-id": "r2"})
    assert (answer.status_code, answer["Content-Type"]) == (500, "application/problem+json")
    assert (answer.json()["request_id"], answer.json()["code"]) == ("r2", "broken")
    assert "swordfish" not in answer.content.decode()


@pytest.mark.urls(__name__)
def test_a_page_that_breaks_tells_its_id(plain_static: None, db: None) -> None:
    answer = Client(raise_request_exception=False).get("/breaks", headers={"x-request-id": "r3"})
    assert answer.status_code == 500
    assert "r3" in answer.content.decode()
    assert "swordfish" not in answer.content.decode()
