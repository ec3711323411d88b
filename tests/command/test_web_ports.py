"""Pages that jobs serve: the tag that says where, the notebook's spec, and the page on which it is submitted."""

import socket
import subprocess

import pytest
import yaml
from django.test import Client as Browser

from jobs_app.models import Job
from motley_client.web_ports import WebPort, host_beside, notebook_spec, tensorboard_command, web_port_of
from motley_command.commands import web_ports
from motley_command.commands.web_ports import _answers
from tests.client.scripted_server import Script, answer
from tests.live_service import Live
from tests.motley_command import Motley
from tests.service_lab import Lab


@pytest.mark.parametrize(
    ("tag", "env", "found"),
    [
        ("8888", {}, WebPort(8888, "")),
        ("8888/lab", {"JUPYTER_TOKEN": "t"}, WebPort(8888, "lab?token=t")),
        ("", {}, None),
        ("lab", {}, None),
        ("70000", {}, None),
    ],
)
def test_the_tag_says_where_a_job_serves_its_page(tag: str, env: dict[str, str], found: WebPort | None) -> None:
    assert web_port_of({"open": tag}, env) == found
    assert WebPort(8888, "lab").address("localhost", 9000) == "http://localhost:9000/lab"


@pytest.mark.parametrize(
    ("service", "host"),
    [
        ("http://127.0.0.1:8000", "localhost"),
        ("http://localhost:8000", "127.0.0.1"),
        ("https://motley.example.org", "127.0.0.1"),
    ],
)
def test_a_page_is_not_opened_at_the_name_for_which_the_browser_has_the_cookies_of_the_service(
    service: str, host: str
) -> None:
    assert host_beside(service) == host


def test_the_token_of_a_page_is_told_to_no_proxy(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", script.url)
    monkeypatch.setenv("NO_PROXY", "")
    script.answers = [answer({})]
    assert _answers(f"{script.url}/lab?token=secret")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        nobody = silent.getsockname()[1]
    monkeypatch.setattr(web_ports, "ANSWERS_WITHIN_S", 0.1)
    assert not _answers(f"http://127.0.0.1:{nobody}/lab?token=secret")
    assert [(request.path, request.query) for request in script.requests] == [("/lab", {})]


def test_two_notebooks_have_ports_and_tokens_of_their_own() -> None:
    one, other = notebook_spec(), notebook_spec()
    assert one["env"] != other["env"]
    assert f"--port {one['tags']['open'].partition('/')[0]}" in one["command"]


def test_a_program_that_is_not_there_is_named_with_the_remedy() -> None:
    for argv in (["/bin/sh", "-c", notebook_spec()["command"]], tensorboard_command("runs", 6006)):
        ran = subprocess.run(argv, env={"PATH": "/nonexistent"}, capture_output=True, text=True, check=False)
        assert (ran.returncode, "nstall it" in ran.stderr, "pip" in ran.stderr) == (127, True, True), ran.stderr


def test_a_notebook_is_submitted_by_two_clicks_and_its_page_says_how_to_open_it(lab: Lab, plain_static: None) -> None:
    lab.node("n1", gpus=1)
    browser = Browser()
    browser.force_login(lab.user())
    assert 'href="/jobs/new?template=notebook"' in browser.get("/jobs").content.decode()
    written = browser.get("/jobs/new?template=notebook&mode=yaml").context["yaml"]
    assert browser.post("/jobs/new", {"mode": "yaml", "yaml": written}).status_code == 302
    job = Job.objects.get(name="notebook")
    assert job.tags == yaml.safe_load(written)["tags"]
    assert f"motley open {job.pk}" in browser.get(f"/jobs/{job.pk}").content.decode()


def test_a_job_that_serves_no_page_or_has_ended_says_so(service: Live, motley: Motley) -> None:
    service.add("plain")
    silent = motley("open", "plain")
    assert (silent.exit_code, "motley change plain --tag open=8888" in silent.stderr) == (2, True)
    over = service.add("over", tags={"open": "8888"}, state=Job.State.FAILED)
    ended = motley("open", str(over.pk))
    assert (ended.exit_code, "over has ended (failed): motley logs" in ended.stderr) == (5, True)
