"""Files of a job over REST: the list, the download, ranges, and who may have them."""

from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from pytest_django import Settings
from rest_framework.test import APIClient

from connections_app.agents.uploads import checkpoints_of
from connections_app.long_requests import server_files
from jobs_app.models import Job
from tests.connections.test_gang_rows import server
from tests.rest_callers import caller
from tests.service_lab import Lab


@pytest.fixture
def job(cluster: Lab) -> Job:
    """As if it had written a file with an odd name, one in a folder, and a link out of its folder."""
    job = cluster.submit()
    work = cluster.recorded_as_ended(job) / "work"
    (work / "out").mkdir()
    (work / "out" / "model.pt").write_text("0123456789")
    (work / "a b&c?.txt").write_text("x\n")
    (work / "link").symlink_to("/etc/passwd")
    return job


def content(client: APIClient, job: Job, path: str, **headers: str) -> Any:
    return client.get(f"/api/v1/jobs/{job.pk}/files/content", {"path": path}, headers=headers)


def body(answer: Any) -> bytes:
    """All that is sent; the server closes the file then."""
    return b"".join(answer)


def test_folders_are_listed(job: Job, ada: APIClient) -> None:
    roots = ada.get(f"/api/v1/jobs/{job.pk}/files").json()
    assert (roots["path"], roots["complete"]) == ("", True)
    assert {"work"} <= {file["name"] for file in roots["files"]}
    work = ada.get(f"/api/v1/jobs/{job.pk}/files", {"path": "work/"}).json()
    assert [(file["name"], file["kind"]) for file in work["files"]] == [
        ("out", "folder"),
        ("a b&c?.txt", "file"),
        ("link", "other"),
    ]
    assert work["files"][1]["size"] == 2


def test_a_file_is_downloaded_whole_or_in_part(job: Job, ada: APIClient) -> None:
    whole = content(ada, job, "work/out/model.pt")
    assert (whole.status_code, whole["Content-Length"], body(whole)) == (200, "10", b"0123456789")
    assert whole["Content-Type"] == "application/octet-stream"
    assert whole["Content-Disposition"] == 'attachment; filename="model.pt"'
    part = content(ada, job, "work/out/model.pt", range="bytes=4-6")
    assert (part.status_code, part["Content-Range"], body(part)) == (206, "bytes 4-6/10", b"456")
    assert body(content(ada, job, "work/out/model.pt", range="bytes=-2")) == b"89"
    assert body(content(ada, job, "work/a b&c?.txt")) == b"x\n"


def test_no_file_stays_open(job: Job, ada: APIClient) -> None:
    def open_files() -> list[Path]:
        return [at for at in Path("/proc/self/fd").iterdir() if at.resolve().name == "model.pt"]

    for header in ({}, {"range": "bytes=4-6"}, {"range": "bytes=99-"}):
        body(content(ada, job, "work/out/model.pt", **header))
        assert open_files() == []


@pytest.mark.parametrize("name", ["line\n", "two\nlines", " blanks ", 'a"b\\c', "tab\t", "x\r"])
def test_a_file_of_any_name_is_downloaded_over_rest_and_from_its_page(
    name: str, job: Job, cluster: Lab, ada: APIClient
) -> None:
    (cluster.root / "jobs" / str(job.pk) / "work" / name).write_text("x")
    page = Client()
    page.force_login(cluster.user())
    assert body(content(ada, job, f"work/{name}")) == b"x"
    assert body(page.get(reverse("job-file", args=[job.pk]), {"path": f"work/{name}"})) == b"x"


def test_a_range_past_the_end_is_refused(job: Job, ada: APIClient) -> None:
    answer = content(ada, job, "work/out/model.pt", range="bytes=10-")
    assert (answer.status_code, answer["Content-Range"]) == (416, "bytes */10")


def test_nothing_but_files_of_the_job_is_sent(job: Job, ada: APIClient) -> None:
    for path in ("work/link", "work/../unpacked", "../../../etc/passwd", "work/nothing", "work", "."):
        answer = content(ada, job, path)
        assert answer.status_code == 404, path
        assert "There is no such file in the folder of the job" in answer.json()["detail"]


def test_no_link_is_listed_through(job: Job, ada: APIClient) -> None:
    for path in ("work/link", "..", "work/../.."):
        assert ada.get(f"/api/v1/jobs/{job.pk}/files", {"path": path}).status_code == 404


def test_files_are_for_the_team_alone(job: Job, cluster: Lab) -> None:
    stranger = caller(cluster.user("eve", "other"))
    assert stranger.get(f"/api/v1/jobs/{job.pk}/files").status_code == 404
    assert content(stranger, job, "work/out/model.pt").status_code == 404


def test_a_job_that_waits_has_no_files(cluster: Lab, ada: APIClient) -> None:
    job = cluster.submit()
    assert ada.get(f"/api/v1/jobs/{job.pk}/files").json()["files"] == []
    assert content(ada, job, "work/x").status_code == 404
    assert ada.get(f"/api/v1/jobs/{job.pk}/files/content").json()["errors"][0]["pointer"] == "/path"


def test_one_person_leaves_places_for_files_on_servers_to_others(
    cluster: Lab, ada: APIClient, settings: Settings, tmp_path: Path
) -> None:
    """A place is taken until the file is read; what is on this machine takes none."""
    settings.MOTLEY_AGENT_ROOT = tmp_path
    server("gpu1")
    job = cluster.submit()
    cluster.attempt(job, engine="servers", nodes=["gpu1"], launched_at=timezone.now())
    checkpoints_of(job.pk).parent.mkdir(parents=True)
    checkpoints_of(job.pk).write_bytes(b"packed")
    open_ones = [content(ada, job, "checkpoints.tar.gz", **header) for header in ({}, {"range": "bytes=2-"})]
    for refused in (content(ada, job, "checkpoints.tar.gz"), ada.get(f"/api/v1/jobs/{job.pk}/files")):
        assert (refused.status_code, refused["Retry-After"]) == (503, "15")
        assert refused.json()["code"] == "too_many_long_requests"
        assert "You have 2 open requests for files on servers, the limit: close one" in refused.json()["detail"]
    browser = Client()
    browser.force_login(cluster.user())
    page = browser.get(f"/jobs/{job.pk}/file", {"path": "checkpoints.tar.gz"})
    assert (page.status_code, page["Retry-After"]) == (503, "15")
    other = caller(cluster.user("bob"))
    assert [one["name"] for one in other.get(f"/api/v1/jobs/{job.pk}/files").json()["files"]] == ["checkpoints.tar.gz"]
    assert [body(answer) for answer in open_ones] == [b"packed", b"cked"]
    assert content(ada, job, "none").status_code == 404
    assert ada.get(f"/api/v1/jobs/{job.pk}/files").status_code == 200
    assert server_files._open.total() == 0
