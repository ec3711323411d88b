"""The log of a job on its pages: last lines, the meaning of its exit code, the merged log, the search, the download."""

import re
from collections.abc import Callable

import pytest
from django.test import Client
from django.utils.html import strip_tags

from jobs_app.models import Job
from tests.service_lab import Lab

BOOM = "echo begun; sleep 0.05; seq 1 30 >&2; printf '\\033[31mboom <i>\\033[0m\\n' >&2; exit 137"


@pytest.fixture
def cluster(lab: Lab, plain_static: None) -> Lab:
    lab.node("n1", gpus=2)
    return lab


@pytest.fixture
def failed(cluster: Lab) -> Job:
    return cluster.until_state(cluster.submit(BOOM), Job.State.FAILED)


@pytest.fixture
def page(cluster: Lab) -> Callable[..., str]:
    client = Client()
    client.force_login(cluster.user())
    return lambda job, **query: client.get(f"/jobs/{job.pk}", query).content.decode()


def logged(html: str) -> list[str]:
    """Lines of the log as shown."""
    shown = re.search(r"<pre[^>]*class=\"log[^>]*>(.*?)</pre>", html, re.DOTALL)
    assert shown
    return strip_tags(shown.group(1)).splitlines()


def test_a_failed_job_shows_its_last_errors_and_what_its_exit_code_means(failed: Job, page: Callable[..., str]) -> None:
    html = page(failed)
    assert "Last lines of stderr" in html
    assert logged(html) == [*map(str, range(12, 31)), "boom &lt;i&gt;"]
    assert '<span class="in-red">boom &lt;i&gt;</span>' in html
    assert strip_tags(html).count("exit code 137") == 1
    assert "memory ran out" in html


def test_a_job_that_ran_out_of_gpu_memory_is_offered_more_of_it(cluster: Lab, page: Callable[..., str]) -> None:
    lost = "echo 'torch.OutOfMemoryError: CUDA out of memory.' >&2; exit 1"
    html = page(cluster.until_state(cluster.submit(lost), Job.State.FAILED))
    assert "larger=gpus" in html
    assert "larger=memory_per_gpu" not in html
    faulty = cluster.until_state(cluster.submit("echo 'ZeroDivisionError' >&2; exit 1"), Job.State.FAILED)
    assert "Run again with" not in page(faulty)


def test_a_job_that_ended_well_shows_its_last_lines_of_both_streams(cluster: Lab, page: Callable[..., str]) -> None:
    job = cluster.until_state(cluster.submit("echo out; sleep 0.05; echo err >&2"), Job.State.SUCCEEDED)
    assert logged(page(job)) == ["out", "err"]
    assert 'class="card failure"' not in page(job)


def test_the_tab_has_both_streams_a_search_and_the_download(failed: Job, page: Callable[..., str]) -> None:
    assert logged(page(failed, tab="logs"))[:3] == ["begun", "1", "2"]
    assert logged(page(failed, tab="logs", stream="stdout")) == ["begun"]
    assert logged(page(failed, tab="logs", search="BOOM")) == ["boom &lt;i&gt;"]
    assert "0 lines with" in page(failed, tab="logs", search="nowhere")
    client = Client()
    client.force_login(failed.owner)
    whole = b"".join(client.get(f"/jobs/{failed.pk}/log"))
    assert whole.splitlines()[0] == b"begun"
    assert len(whole.splitlines()) == 32
