"""A database that is locked or away is no fault of the service: 503, and when to come again."""

import pytest
from django.db import OperationalError
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory

from config.middleware import DatabaseBusy
from config.problems import answer


def locked(request: HttpRequest) -> HttpResponse:
    raise OperationalError("database is locked")


def test_rest_answers_with_503_and_says_when_to_come_again(rf: RequestFactory) -> None:
    response = answer(OperationalError("database is locked"), {"request": rf.get("/api/v1/jobs")})
    assert response is not None
    assert (response.status_code, response["Retry-After"], response.data["code"]) == (503, "5", "database_busy")


@pytest.mark.parametrize(("path", "words"), [("/jobs", b"<h1>Busy</h1>"), ("/api/v1/jobs", b"database_busy")])
@pytest.mark.usefixtures("plain_static")
def test_a_page_says_so(rf: RequestFactory, path: str, words: bytes) -> None:
    response = DatabaseBusy(locked).process_exception(rf.get(path), OperationalError("database is locked"))
    assert response is not None
    assert (response.status_code, response["Retry-After"], words in response.content) == (503, "5", True)


def test_another_error_is_left_to_others(rf: RequestFactory) -> None:
    assert DatabaseBusy(locked).process_exception(rf.get("/jobs"), ValueError("no")) is None
