"""The units of deploy/systemd start what docker-compose.yml starts, and a stop of them ends no job."""

from collections.abc import Iterator

import pytest

from tests.service_lab import UNTIL_LET_GO
from tests.stack.systemd_units import Site, a_site


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with a_site() as running:
        running.declare(a100=2)
        yield running


def test_a_job_runs_to_its_end_under_the_commands_of_the_units(site: Site) -> None:
    job = site.submit("echo on $MOTLEY_GPU_TYPE")
    site.wait_for_state(job, "succeeded")
    assert site.client.logs(job).data == b"on a100\n"


def test_a_job_goes_on_while_the_services_are_stopped_and_is_found_again(site: Site) -> None:
    job = site.submit(UNTIL_LET_GO)
    site.wait_for_state(job, "running")
    stopped = [site.members[name] for name in ("beat", "rounds", "worker", "web")]
    for member in stopped:
        member.end()
    assert site.job_processes()
    for name in ("web", "worker", "rounds", "beat"):
        site.members[name].start()
    site.healthy("web")
    site.let_go(job)
    assert len(site.wait_for_state(job, "succeeded")["attempts"]) == 1
