"""Short campaigns of random faults; `make chaos` runs long ones."""

import os
from pathlib import Path

import pytest

from engines.slurm.private_cluster import missing_programs
from tests.chaos.embedded import embedded
from tests.chaos.ledger import STEPS, ledger_fault
from tests.chaos.slurm import over_slurm
from tests.chaos.stack import full_stack

FAULTS = 24
FAULTS_OVER_SLURM = 12
without_slurm = pytest.mark.skipif(
    bool(missing_programs()) and os.environ.get("CI") != "true", reason="Slurm is not installed: see bootstrap.sh"
)


@pytest.mark.xdist_group("chaos")
def test_the_embedded_service_keeps_its_promises(runtime: Path) -> None:
    with embedded(1) as campaign:
        assert campaign.run(FAULTS) == []


@pytest.mark.xdist_group("chaos")
def test_the_full_stack_keeps_its_promises(runtime: Path) -> None:
    with full_stack(1) as campaign:
        assert campaign.run(FAULTS) == []


@without_slurm
@pytest.mark.xdist_group("slurm")
def test_a_service_over_slurm_keeps_its_promises(runtime: Path) -> None:
    with over_slurm(2) as campaign:
        assert campaign.run(FAULTS_OVER_SLURM) == []


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
