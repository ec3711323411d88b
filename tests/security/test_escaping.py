"""Names and values that would do harm if anything took them for more than text: they reach the job as they are."""

import json
import re
import subprocess
from html import unescape
from itertools import takewhile
from pathlib import Path

import pytest
from django.test import Client
from django.utils.html import escape
from rest_framework.test import APIClient

from jobs_app.models import Job
from jobs_app.submission.conversion import parse_yaml, spec_of
from tests.service_lab import Lab

NASTY = [
    "$(touch pwned)",
    "`touch pwned`",
    "'; touch pwned; '",
    '"; touch pwned; "',
    "-rf * && touch pwned",
    "../../../etc/passwd",
    "%n%s%(x)s{0}",
    "{{ 7*7 }}{% now 'Y' %}",
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "END",
    "a\\nb\\",
    "=cmd|' /C calc'!A0",
    "naïve 模型 🚀",
]
PRINT = 'printf "%s\\n%s\\n" "$MOTLEY_JOB_NAME" "$NASTY"; ls -A'


@pytest.fixture
def jobs(cluster: Lab) -> list[Job]:
    """One of each name; a round has decided on them, and none runs."""
    jobs = [cluster.submit(PRINT, name=n, env={"NASTY": n}, tags={"note": n}, workload=n) for n in NASTY]
    cluster.decide()
    return jobs


def markup_of(browser: Client, address: str) -> str:
    """The page, without a tag of what a name or a job says."""
    shown = browser.get(address).content.decode()
    assert "<script>alert" not in shown, address
    assert "<img src=x" not in shown, address
    return shown


def test_jobs_find_their_names_and_values_as_they_were_written_and_no_file_is_named_after_them(
    cluster: Lab, browser: Client, jobs: list[Job]
) -> None:
    for job in jobs:
        cluster.until_state(job, Job.State.SUCCEEDED)
    assert [cluster.output(job) for job in jobs] == [f"{name}\n{name}\n" for name in NASTY]
    below = {path.name for folder in ("jobs", "attempts") for path in (cluster.root / folder).iterdir()}
    assert all(re.fullmatch(r"[0-9a-f-]+", name) for name in below)
    for job in jobs:
        assert escape(job.name) in markup_of(browser, f"/jobs/{job.pk}?tab=logs")
        download = browser.get(f"/jobs/{job.pk}/log")
        assert re.fullmatch(r'attachment; filename="[a-z0-9][a-z0-9._-]*\.log"', download["Content-Disposition"])
        assert b"".join(download) == f"{job.name}\n{job.name}\n".encode()


def test_pages_show_names_as_text(browser: Client, jobs: list[Job]) -> None:
    for job in jobs:
        tabs = [f"/jobs/{job.pk}?tab={tab}" for tab in ("overview", "why", "attempts", "events", "spec")]
        for address in (*tabs, f"/jobs/new?clone={job.pk}", f"/jobs/cancel?job={job.pk}"):
            markup_of(browser, address)
        assert escape(job.name) in markup_of(browser, tabs[0])


def test_lists_show_names_as_text(browser: Client, jobs: list[Job]) -> None:
    for address in ("/", "/jobs", "/audit", "/rounds"):
        markup_of(browser, address)


def test_a_name_is_found_as_it_is(ada: APIClient, jobs: list[Job]) -> None:
    for job in jobs:
        words = " ".join(takewhile(lambda word: "=" not in word, job.name.split()))  # such words look for tags
        found = ada.get("/api/v1/jobs", {"q": words, "tag": f"note={job.name}"}).json()["results"]
        assert [one["id"] for one in found] == [str(job.pk)]


# -- what people copy into a shell -----------------------------------------------------------------------------------

BODY = 'curl() { while [ "$1" != -d ]; do shift; done; printf %s "$2"; }'
"""A curl that prints what it would send."""
COPIED = [*NASTY, "one\nEND\ntouch pwned\n", "'\nEND\n'touch pwned'"]


def ready_to_copy(browser: Client, job: Job, what: str) -> str:
    shown = browser.get(f"/jobs/{job.pk}", {"tab": "spec"}).content.decode()
    found = re.search(rf'<pre id="spec-{what}">(.*?)</pre>', shown, re.DOTALL)
    assert found
    return unescape(found[1])


def pasted(text: str, stub: str, folder: Path) -> str:
    """What the command gets, when the text is pasted into a shell in an empty folder."""
    done = subprocess.run(["bash", "-c", f"{stub}\n{text}"], cwd=folder, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr, list(folder.iterdir())) == (0, "", [])
    return done.stdout


def specs(cluster: Lab) -> list[Job]:
    return [cluster.submit(text, name=" ".join(text.split()), env={"A": text}) for text in COPIED]


def test_what_is_copied_says_the_spec_and_nothing_else(cluster: Lab, browser: Client, tmp_path: Path) -> None:
    for job in specs(cluster):
        by_command = pasted(ready_to_copy(browser, job, "cli"), "motley() { cat; }", tmp_path)
        by_curl = pasted(ready_to_copy(browser, job, "curl"), BODY, tmp_path)
        assert parse_yaml(by_command) == json.loads(by_curl) == spec_of(job)
