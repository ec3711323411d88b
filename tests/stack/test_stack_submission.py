"""A job submitted through every interface of the full stack."""

import os
import subprocess
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import expect, sync_playwright

from tests.chromium import CHROMIUM
from tests.deployment import PATIENCE_S, ROOT
from tests.stack.composed import Stack


def test_a_job_submitted_over_rest_runs_to_its_end(stack: Stack) -> None:
    answer = httpx.post(
        f"{stack.url}/api/v1/jobs",
        headers={"Authorization": f"Bearer {stack.token}"},
        json={"name": "by-rest", "team": "vision", "gpus": 1, "command": "echo on $MOTLEY_GPU_TYPE"},
    )
    assert answer.status_code == 201, answer.text
    job = answer.json()["id"]
    stack.wait_for_state(job, "succeeded")
    assert stack.client.logs(job).data.startswith(b"on ")


def test_a_job_submitted_by_the_command_line_runs_to_its_end(stack: Stack, tmp_path: Path) -> None:
    command = ["motley", "submit", "--team", "vision", "--gpus", "1", "--name", "by-command", "--wait", "--", "true"]
    environment = {"MOTLEY_URL": stack.url, "MOTLEY_TOKEN": stack.token, "HOME": str(tmp_path)}
    path = f"{ROOT}/.venv/bin:{os.environ['PATH']}"
    done = subprocess.run(
        command, env=environment | {"PATH": path}, capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert next(iter(stack.client.jobs(q="by-command")))["state"] == "succeeded"


def test_a_session_reaches_a_job_in_the_container_of_the_worker(stack: Stack) -> None:
    job = stack.client.submit({"name": "open", "team": "vision", "gpus": 1, "command": "echo up; sleep 3600"})["id"]
    stack.wait_for_state(job, "running")
    command = ["motley", "exec", job, "--", "sh", "-c", "echo $MOTLEY_JOB_ID; exit 7"]
    environment = {"MOTLEY_URL": stack.url, "MOTLEY_TOKEN": stack.token, "HOME": "/nonexistent"}
    path = f"{ROOT}/.venv/bin:{os.environ['PATH']}"
    done = subprocess.run(
        command, env=environment | {"PATH": path}, capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )
    stack.client.cancel(job)
    assert (done.returncode, done.stdout, done.stderr) == (7, f"{job}\n", "")


@pytest.mark.skipif(CHROMIUM is None and os.environ.get("CI") != "true", reason="no Chromium: install chromium")
def test_a_job_submitted_in_the_browser_runs_to_its_end(stack: Stack) -> None:
    """Static files come from where the web process has them; they were collected for the image."""
    password = stack.password()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-quic"])
        page = browser.new_page()
        page.set_default_timeout(PATIENCE_S * 1000)
        page.goto(f"{stack.url}/login/")
        page.fill("input[name=username]", "ada")
        page.fill("input[name=password]", password)
        page.click("main button[type=submit]")
        page.goto(f"{stack.url}/jobs/new")
        page.fill("[name=name]", "by-browser")
        page.select_option("[name=team]", "vision")
        page.fill("[name=command]", "python -m motley_client.sample --steps 50")
        page.fill("[name=gpus]", "1")
        page.click("main form button[type=submit]")
        expect(page.locator("h1")).to_contain_text("by-browser")
        expect(page.locator("body")).to_contain_text("succeeded", timeout=PATIENCE_S * 1000)
        browser.close()
