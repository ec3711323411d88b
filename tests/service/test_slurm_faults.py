"""A short campaign of random faults on the service over Slurm; `tests.service.slurm_faults` runs long ones."""

import os
from collections.abc import Iterator

import pytest

from engines.slurm.private_cluster import PrivateCluster, missing_programs
from tests.service.running_service import Service
from tests.service.slurm_faults import STEPS, Campaign, ledger_fault, private_cluster

pytestmark = [
    pytest.mark.xdist_group("slurm"),
    pytest.mark.skipif(
        bool(missing_programs()) and os.environ.get("CI") != "true", reason="Slurm is not installed: see bootstrap.sh"
    ),
]
FAULTS = 12


@pytest.fixture(scope="module")
def campaign_cluster() -> Iterator[PrivateCluster]:
    with private_cluster() as cluster:
        yield cluster


def test_whatever_is_killed_each_job_does_each_of_its_steps_and_nothing_is_left(
    service: Service, campaign_cluster: PrivateCluster
) -> None:
    assert Campaign(service, campaign_cluster, seed=2).run(FAULTS) == []


@pytest.mark.parametrize(
    ("rows", "fault"),
    [
        ([(1, step) for step in range(1, STEPS + 1)], ""),
        ([(1, 1), (1, 2), *((2, step) for step in range(2, STEPS + 1))], ""),
        ([(1, 1), (1, 2), *((2, step) for step in range(3, STEPS + 1))], ""),
        ([(1, step) for step in range(1, STEPS)], f"it goes from [(1, 1)] to [(1, {STEPS - 1})]"),
        ([(1, 1), *((2, step) for step in range(3, STEPS + 1))], "(1, 1) is followed by (2, 3)"),
        ([(1, 1), (2, 1), (1, 2), *((2, step) for step in range(2, STEPS + 1))], "(2, 1) is followed by (1, 2)"),
        ([], "it goes from [] to []"),
    ],
)
def test_a_ledger_shows_steps_that_are_missing_or_done_by_two_at_once(rows: list[tuple[int, int]], fault: str) -> None:
    assert ledger_fault(rows) == fault
