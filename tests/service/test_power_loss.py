"""Whatever the service has answered for lasts through a power cut: its disk loses all that was not synced."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.chaos.lossy_disk import LossyDisk, lossy_disk
from tests.private_servers import private_folder
from tests.service.running_service import Service, a_service


@pytest.fixture(scope="module")
def disk() -> Iterator[LossyDisk]:
    with private_folder("motley-lossy-") as folder, lossy_disk(folder, mib=256) as disk:
        if disk is None:
            pytest.skip("no disk can be mounted here")
        yield disk


@pytest.fixture(scope="module")
def service(runtime: Path, disk: LossyDisk) -> Iterator[Service]:
    """From nothing: all of its files are new."""
    with a_service(MOTLEY_VAR=str(disk.path)) as running:
        yield running


def lose_power(service: Service, disk: LossyDisk) -> None:
    service.lose_power()
    disk.lose_unsynced()


def test_a_new_service_starts_again_with_its_accounts_key_and_pages(service: Service, disk: LossyDisk) -> None:
    login, key = service.login, (disk.path / "secret_key").read_text()
    lose_power(service, disk)
    service.start()
    assert (service.login, (disk.path / "secret_key").read_text()) == (login, key)
    page = httpx.get(f"{service.url}/login/").text
    style = next(word.split('"')[1] for word in page.split("href=")[1:] if ".css" in word)
    assert "{" in httpx.get(f"{service.url}{style}").text


def test_a_job_that_was_answered_for_is_there(service: Service, disk: LossyDisk) -> None:
    service.declare(a100=4)
    jobs = [service.submit("true", name=f"job-{number}") for number in range(5)]
    lose_power(service, disk)
    service.start()
    assert {job["id"] for job in service.client.jobs()} >= {*jobs}
