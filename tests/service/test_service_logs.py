"""A service at work logs for machines: every line is JSON, says what it is about, and holds no secret."""

import json
import re
from typing import Any

import httpx

from tests.deployment import wait_for
from tests.service.running_service import Service

STARTED = "1 started, 0 stopped, 0 moved"
LAST_OF_EACH = ("POST /login/", "POST /api/v1/tokens", STARTED)
"""A request is logged after its answer, and a round after its commit."""
IN_THE_ENVIRONMENT, IN_THE_QUERY, WRONG = "swordfish-1 of the job", "swordfish-2-in-an-address", "swordfish-3 typed"


def test_lines_say_what_they_are_about_and_hold_no_secret(four_gpus: Service) -> None:
    job = four_gpus.submit('test -n "$API_KEY"; exit 3', env={"API_KEY": IN_THE_ENVIRONMENT})
    said = [IN_THE_ENVIRONMENT, IN_THE_QUERY, WRONG, *four_gpus.login.values(), *_secrets_of_pages(four_gpus)]
    said.append(_token_made(four_gpus))
    four_gpus.wait_for_state(job, "failed")
    wait_for("all of it is logged", lambda: all(words in four_gpus.log.read_text() for words in LAST_OF_EACH))
    logged = [line for line in four_gpus.log.read_text().splitlines() if line.startswith("{")]
    _are_about([json.loads(line) for line in logged], job)
    secrets = [text for text in said if text not in (four_gpus.url, "demo")]
    assert len(secrets) == 8
    assert [text for text in secrets if any(text in line for line in logged)] == []


def _secrets_of_pages(service: Service) -> list[str]:
    """What a browser holds after a wrong password and the right one."""
    with httpx.Client(base_url=service.url, headers={"x-request-id": "by-a-browser"}) as browser:
        form = browser.get("/login/", params={"token": IN_THE_QUERY}).text
        hidden = re.findall(r'name="csrfmiddlewaretoken" value="(\w+)"', form)[0]
        for password in (WRONG, service.login["MOTLEY_PASSWORD"]):
            fields = {"username": service.login["MOTLEY_USER"], "password": password, "csrfmiddlewaretoken": hidden}
            answer = browser.post("/login/", data=fields)
        assert answer.status_code == 302
        return [browser.cookies["sessionid"], browser.cookies["csrftoken"]]


def _token_made(service: Service) -> str:
    headers = {"authorization": f"Bearer {service.login['MOTLEY_TOKEN']}", "x-request-id": "by-a-script"}
    answer = httpx.post(f"{service.url}/api/v1/tokens", json={"name": "ci"}, headers=headers)
    return str(answer.json()["token"])


def _are_about(lines: list[dict[str, Any]], job: str) -> None:
    assert all(line.keys() >= {"timestamp", "level", "logger", "event"} for line in lines)
    of_requests = {(line["request_id"], line["request"]) for line in lines if "request" in line}
    assert of_requests >= {("by-a-browser", "POST /login/"), ("by-a-script", "POST /api/v1/tokens")}
    of_the_job = [line for line in lines if line.get("job_id") == job]
    assert {line["event"].split(":")[0] for line in of_the_job} >= {"launched on 1 x a100"}
    assert {(line["attempt"], line["node"]) for line in of_the_job} == {(1, "node-a100")}
    assert any(line["event"].endswith(STARTED) and "round" in line for line in lines)


def test_a_person_at_a_terminal_reads_plain_lines(service: Service) -> None:
    """The same settings as `make run` there; a test has no terminal."""
    service.environment["MOTLEY_LOG_FORMAT"] = "text"
    answer = service.manage("schedule", "--once")
    assert answer.returncode == 0
    assert not [line for line in answer.stderr.splitlines() if line.startswith("{")]
