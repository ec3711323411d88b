"""Files of a job on its page: the list, the download, and who may have them."""

import re
from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from django.test import Client

from jobs_app.models import Job
from tests.service_lab import Lab


@pytest.fixture
def job(lab: Lab, plain_static: None) -> Job:
    """It wrote a file that looks like a page, one with an odd name, and a link out of its folder."""
    lab.node("n1", gpus=1)
    command = "mkdir out; echo '<script>' > out/page.html; echo x > 'a b&c?.txt'; ln -s /etc/passwd link"
    return lab.until_state(lab.submit(command), Job.State.SUCCEEDED)


@pytest.fixture
def browser() -> Callable[[User], Client]:
    def of(user: User) -> Client:
        client = Client()
        client.force_login(user)
        return client

    return of


def test_files_are_listed_and_downloaded_by_the_team_alone(
    job: Job, lab: Lab, browser: Callable[[User], Client]
) -> None:
    mine, stranger = browser(lab.user()), browser(lab.user("eve", "other"))
    listed = mine.get(f"/jobs/{job.pk}?tab=files&path=work").content.decode()
    assert "a b&amp;c?.txt" in listed
    assert "link or device, not followed" in listed
    address = re.findall(r'href="([^"]+)" download', listed)[0]
    assert b"".join(mine.get(address.replace("&amp;", "&"))) == b"x\n"
    page = mine.get(f"/jobs/{job.pk}/file", {"path": "work/out/page.html"})
    assert b"".join(page) == b"<script>\n"
    assert page["Content-Type"] == "application/octet-stream"
    assert page["Content-Disposition"] == 'attachment; filename="page.html"'
    assert page["Content-Length"] == "9"
    for path in ("work/link", "work/../unpacked", "../../../etc/passwd", "work/nothing"):
        assert mine.get(f"/jobs/{job.pk}/file", {"path": path}).status_code == 404
    assert mine.get(f"/jobs/{job.pk}?tab=files&path=work/link").status_code == 404
    for address in (f"/jobs/{job.pk}?tab=files", f"/jobs/{job.pk}/file?path=work/out/page.html"):
        assert stranger.get(address).status_code == 404
        assert Client().get(address).status_code == 302
