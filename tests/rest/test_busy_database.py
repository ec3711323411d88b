"""A database that is locked or away is no fault of the service: 503, and when to come again."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.db import DatabaseError, OperationalError
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory
from pytest_django import Settings

from config.middleware import DatabaseBusy
from config.problems import answer
from database.damage import is_noted
from tests.deployment import ROOT
from tests.private_servers import free_port


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


MALFORMED = DatabaseError("database disk image is malformed")


@pytest.mark.parametrize(
    ("path", "words"), [("/jobs", b"must restore a backup"), ("/api/v1/jobs", b"database_damaged")]
)
@pytest.mark.usefixtures("plain_static")
def test_a_damaged_database_is_not_said_to_be_busy(
    rf: RequestFactory, settings: Settings, tmp_path: Path, path: str, words: bytes
) -> None:
    settings.VAR_DIR = tmp_path
    response = DatabaseBusy(locked).process_exception(rf.get(path), MALFORMED)
    assert response is not None
    assert (response.status_code, "Retry-After" in response, words in response.content) == (503, False, True)
    of_rest = answer(MALFORMED, {"request": rf.get("/api/v1/jobs")})
    assert of_rest is not None
    assert (of_rest.status_code, of_rest.data["code"]) == (503, "database_damaged")
    assert is_noted()


@pytest.mark.parametrize("content", [b"this is no database" * 500, b"SQLite format 3\0" + b"\xff" * 9000])
def test_the_service_starts_on_no_damaged_file_and_says_what_to_do(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "motley.sqlite3").write_bytes(content)
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "MOTLEY_VAR": str(tmp_path),
        "MOTLEY_PORT": str(free_port()),
    }
    done = subprocess.run(
        [sys.executable, "manage.py", "serve"],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (done.returncode, "Traceback" in done.stderr) == (1, False), done.stderr
    assert "restore a backup" in done.stderr
