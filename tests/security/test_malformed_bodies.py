"""Bodies that hold no spec: malformed, too large, too deep, or of another kind. Each is refused with a way out."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jobs_app.models import Job
from tests.live_service import Live
from tests.security.interfaces import Interfaces
from tests.security.invalid_specs import BAD_YAML, BOMB, LEAST, MERGES

ROUTES = ["/api/v1/jobs", "/api/v1/jobs?dry_run=true", "/api/v1/jobs/batch", "/api/v1/jobs/{job}/clone"]
TWICE = '{"name": "net", "command": "true", "gpus": 1, "gpus": 4}'
BODIES: dict[str, tuple[bytes, int, str]] = {
    "nothing": (b"", 422, "required"),
    "unfinished": (b"{", 400, "JSON"),
    "not utf-8": (b'{"name": "\xff"}', 400, "utf-8"),
    "a byte order mark": (b"\xef\xbb\xbf" + json.dumps(LEAST).encode(), 400, "BOM"),
    "a list": (b"[]", 422, ""),
    "nothing at all": (b"null", 422, ""),
    "a text": (b'"job"', 422, ""),
    "not a number": (b'{"weight": NaN}', 400, "NaN"),
    "a field said twice": (TWICE.encode(), 400, "the key 'gpus' appears twice"),
    "ten thousand brackets": (b"[" * 10_000, 400, "nested deeper than"),
    "five thousand digits": (b'{"gpus": ' + b"9" * 5_000 + b"}", 400, "digits"),
    "too much": (b'{"name": "' + b"x" * 2_700_000 + b'"}', 413, "1,048,576 bytes"),
}
KINDS = ["application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "text/plain", "application/yaml", ""]


@pytest.fixture
def interfaces(service: Live, tmp_path: Path) -> Iterator[Interfaces]:
    service.add("there before")
    interfaces = Interfaces(service, tmp_path)
    with interfaces.client:
        yield interfaces


def sent(interfaces: Interfaces, route: str, body: bytes, kind: str = "application/json", method: str = "POST") -> Any:
    address = route.format(job=interfaces.service.jobs[-1].pk)
    answer = interfaces.rest.generic(method, address, body, kind)
    assert answer["Content-Type"] == "application/problem+json", answer.content
    assert Job.objects.count() == 1
    return answer


def test_a_body_that_is_none_is_refused_in_words(interfaces: Interfaces) -> None:
    for what, (body, status, says) in BODIES.items():
        answer = sent(interfaces, "/api/v1/jobs", body)
        assert (what, answer.status_code, says in answer.content.decode()) == (what, status, True)


TAKEN = {"batch": {"too much"}, "clone": {"nothing", "nothing at all"}}
"""Of a batch more may be sent; a clone without changes needs no body."""


def test_every_route_that_takes_a_job_refuses_it(interfaces: Interfaces) -> None:
    bodies = {(r, what): BODIES[what][0] for r in ROUTES[1:] for what in BODIES.keys() - TAKEN.get(last_of(r), set())}
    answers = {(route, what): sent(interfaces, route, body).status_code for (route, what), body in bodies.items()}
    assert {case for case, status in answers.items() if status not in {400, 413, 422}} == set()


def last_of(route: str) -> str:
    return route.rsplit("/", maxsplit=1)[-1]


def test_a_change_refuses_it(interfaces: Interfaces) -> None:
    bodies = {what: BODIES[what][0] for what in BODIES.keys() - {"nothing"}}
    one = "/api/v1/jobs/{job}"
    answers = {what: sent(interfaces, one, body, method="PATCH").status_code for what, body in bodies.items()}
    assert {what for what, status in answers.items() if status not in {400, 413, 422}} == set()


def test_a_body_of_another_kind_is_refused(interfaces: Interfaces) -> None:
    answers = {(route, kind): sent(interfaces, route, b"name: net", kind) for route in ROUTES for kind in KINDS}
    told = {case: (answer.status_code, answer.json()["code"]) for case, answer in answers.items()}
    assert told == dict.fromkeys(answers, (415, "unsupported_media_type"))


def test_no_depth_of_brackets_breaks_anything(interfaces: Interfaces) -> None:
    """With a key, for which the body is written out again."""
    for depth in (20, 200, 500, 700, 800, 900, 960, 980, 990, 1000, 100_000):
        body, key = b'{"name": ' + b"[" * depth + b"]" * depth + b"}", {"Idempotency-Key": f"k{depth}"}
        answer = interfaces.rest.generic("POST", "/api/v1/jobs", body, "application/json", headers=key)
        assert answer.status_code in {400, 422}, depth


def test_ten_thousand_and_one_jobs_are_refused_by_their_number(interfaces: Interfaces) -> None:
    answer = sent(interfaces, "/api/v1/jobs/batch", json.dumps({"jobs": [LEAST] * 10_001}).encode())
    assert (answer.status_code, answer.json()["code"]) == (422, "too_many")
    assert "10,001" in answer.json()["detail"]


# -- YAML ----------------------------------------------------------------------------------------------------------


def by_page(interfaces: Interfaces, text: str) -> str:
    answer = interfaces.browser.post("/jobs/new", {"mode": "yaml", "do": "submit", "yaml": text})
    assert answer.status_code == 200
    assert text[:20] in answer.content.decode().replace("&amp;", "&").replace("&#x27;", "'").replace("\r\n", "\n")
    return answer.content.decode()


def by_form(interfaces: Interfaces, text: str) -> str:
    fields = {"mode": "form", "do": "submit", "name": "net", "command": "true", "gpus": "1", "more": text}
    answer = interfaces.browser.post("/jobs/new", fields)
    assert answer.status_code == 200
    return answer.content.decode()


def by_check(interfaces: Interfaces, text: str) -> str:
    answer = interfaces.browser.post("/jobs/new/check", {"mode": "yaml", "yaml": text})
    assert (answer.status_code, answer.json()["faults"] != []) == (200, True)
    return str(answer.json()["faults"][0]["detail"])


def by_command(interfaces: Interfaces, text: str) -> str:
    done = interfaces.motley("submit", "-", typed=text)
    assert (done.exit_code, done.stdout, "Traceback" in done.stderr) == (2, "", False)
    return done.stderr


def by_option(interfaces: Interfaces, text: str) -> str:
    done = interfaces.motley("submit", "--gpus", "1", "--set", f"env={text}", "--", "true")
    assert (done.exit_code, done.stdout, "Traceback" in done.stderr) == (2, "", False)
    return done.stderr


@pytest.mark.parametrize("interface", [by_page, by_form, by_check, by_command, by_option])
def test_yaml_that_is_none_or_an_attack_is_refused_with_its_reason(
    interfaces: Interfaces, interface: Callable[..., str]
) -> None:
    found = {}
    for what, (text, says) in BAD_YAML.items():
        shown = interface(interfaces, text).replace("&#x27;", "'").replace("&quot;", '"')
        said = says in shown or ("\0" in text and "Null characters" in shown)
        if not said or Job.objects.count() != 1:
            found[what] = shown[-300:]
    assert found == {}


@pytest.mark.parametrize("text", [BOMB, MERGES])
def test_aliases_of_aliases_cost_nothing(interfaces: Interfaces, text: str) -> None:
    began = time.process_time()
    by_check(interfaces, text)
    assert time.process_time() - began < 5


@pytest.mark.parametrize("interface", [by_page, by_form, by_check])
def test_more_than_256_kib_are_refused(interfaces: Interfaces, interface: Callable[..., str]) -> None:
    assert "larger than 256 KiB" in interface(interfaces, f"name: {'x' * 300_000}")


def test_several_documents_are_one_too_many_for_a_page(interfaces: Interfaces) -> None:
    assert "more than one YAML document" in by_check(interfaces, "name: a\n---\nname: b")


def test_a_file_that_is_no_text_is_a_usage_error(interfaces: Interfaces) -> None:
    (interfaces.folder / "job.yaml").write_bytes(b"name: \xff\xfe")
    done = interfaces.motley("submit", str(interfaces.folder / "job.yaml"))
    assert (done.exit_code, "is not a text in UTF-8" in done.stderr) == (2, True)


def test_a_page_refuses_a_body_that_is_too_large(interfaces: Interfaces) -> None:
    answer = interfaces.browser.post("/jobs/new", {"mode": "yaml", "yaml": "x" * 2_700_000})
    assert answer.status_code == 413
    assert "2.5" in answer.content.decode()


@pytest.mark.parametrize(
    "address", ["/login/", "/tokens", "/password", "/jobs/cancel", "/jobs/new/check", "/jobs/new/forecast"]
)
def test_so_does_every_page_that_is_written_to(interfaces: Interfaces, address: str) -> None:
    assert interfaces.browser.post(address, {"x": "x" * 2_700_000}).status_code == 413
