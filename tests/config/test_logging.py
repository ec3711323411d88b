"""Logs: JSON for machines, lines for persons, and no secret in either."""

import io
import json
import logging
from collections.abc import Callable
from logging.config import dictConfig
from typing import Any

import pytest
import structlog
from django.conf import settings
from structlog.contextvars import bound_contextvars

from config.logs import logging_config, wants_json, without_secrets
from jobs_app.models import ApiToken
from jobs_app.tokens import JobToken

TOKEN = ApiToken().set_text()
SECRETS = [
    TOKEN,
    f"Authorization: Bearer {TOKEN}",
    JobToken.issue(17),
    "Cookie: sessionid=abcdef0123456789; csrftoken=fedcba9876543210",
    "postgresql://motley:swordfish@db/motley",
    "redis://:swordfish@redis:6379/0",
    'ERROR: new row violates check\nDETAIL: Failing row contains (1, train, {"WANDB_API_KEY": "swordfish"}, null).',
]
HARMLESS = [
    "job_held_only_while_queued",
    "job_is_finished",
    "https://localhost:8000/api/v1/jobs?fields=id",
    "mot_short",
    "round 12: 3 jobs",
]


@pytest.fixture
def logged(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """What a log set up so has written."""
    written = io.StringIO()
    monkeypatch.setattr("sys.stderr", written)
    dictConfig(logging_config(as_json=request.param, level="INFO"))
    yield written.getvalue
    monkeypatch.undo()
    dictConfig(settings.LOGGING)


as_json = pytest.mark.parametrize("logged", [True], indirect=True)
as_text = pytest.mark.parametrize("logged", [False], indirect=True)
either = pytest.mark.parametrize("logged", [True, False], indirect=True)


@pytest.mark.parametrize("text", SECRETS, ids=range(len(SECRETS)))  # each worker makes secrets of its own
def test_a_secret_is_cut_out(text: str) -> None:
    (said,) = without_secrets(None, "info", {"event": text}).values()
    for secret in (TOKEN, "swordfish", "abcdef0123456789", "fedcba9876543210", text.rpartition(":")[2]):
        assert secret not in said or len(secret) < 20


@pytest.mark.parametrize("text", HARMLESS)
def test_what_only_looks_like_one_stays(text: str) -> None:
    assert without_secrets(None, "info", {"event": text, "n": 1}) == {"event": text, "n": 1}


@as_json
def test_a_line_for_machines(logged: Callable[[], str]) -> None:
    with bound_contextvars(request_id="r1", round=12):
        logging.getLogger("scheduler_app.round.run_round").info("%s jobs", 3)
    line = json.loads(logged())
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "event": "3 jobs",
        "level": "info",
        "logger": "scheduler_app.round.run_round",
        "request_id": "r1",
        "round": 12,
    }


@as_json
def test_both_ways_to_log_come_out_alike(logged: Callable[[], str]) -> None:
    logging.getLogger("one").info("done")
    structlog.get_logger("one").info("done")
    one, other = (json.loads(line) for line in logged().splitlines())
    assert one.keys() == other.keys()
    assert {key: one[key] for key in ("event", "level", "logger")} == {
        key: other[key] for key in ("event", "level", "logger")
    }


@as_text
def test_a_line_for_persons(logged: Callable[[], str]) -> None:
    with bound_contextvars(round=12):
        logging.getLogger("scheduler_app.round.run_round").info("%s jobs", 3)
    assert "3 jobs" in logged()
    assert "round=12" in logged()
    assert "\x1b" not in logged()


@either
def test_a_fault_comes_with_its_place_but_without_values(logged: Callable[[], str]) -> None:
    password = "swordfish"
    try:
        raise RuntimeError(f"{len(password)} letters")
    except RuntimeError:
        logging.getLogger("one").exception("it broke")
    assert "test_a_fault_comes_with_its_place" in logged()
    assert "9 letters" in logged()
    assert password not in logged().replace('"swordfish"', "").replace('\\"swordfish\\"', "")


@either
def test_secrets_in_a_fault_are_cut_out(logged: Callable[[], str]) -> None:
    try:
        raise RuntimeError(SECRETS[-1])
    except RuntimeError:
        logging.getLogger("one").exception("it broke")
    assert "Failing row contains (…)" in logged()
    assert "swordfish" not in logged()


@either
def test_queries_with_their_parameters_are_not_logged(logged: Callable[[], str]) -> None:
    logging.getLogger("django.db.backends").debug("INSERT %s", "swordfish")
    assert logged() == ""


def test_a_terminal_is_for_persons(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal, file = io.StringIO(), io.StringIO()
    terminal.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr("sys.stderr", terminal)
    assert [wants_json(form) for form in ("auto", "json", "text")] == [False, True, False]
    monkeypatch.setattr("sys.stderr", file)
    assert [wants_json(form) for form in ("auto", "json", "text")] == [True, True, False]
