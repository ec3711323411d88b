"""Short campaigns of random faults; `make chaos` runs long ones."""

import argparse
import os
import shlex
from pathlib import Path

import pytest

from operations.private_slurm import missing_programs
from tests.chaos.__main__ import command_of
from tests.chaos.embedded import embedded
from tests.chaos.ledger import STEPS, ledger_fault
from tests.chaos.rows import fault_of_history
from tests.chaos.servers import on_servers
from tests.chaos.slurm import over_slurm
from tests.chaos.stack import full_stack
from tests.chaos.upgrades import KINDS

FAULTS = 12
FAULTS_OVER_SLURM = 6
FAULTS_ON_SERVERS = 12
without_slurm = pytest.mark.skipif(
    bool(missing_programs()) and os.environ.get("CI") != "true", reason="Slurm is not installed: see bootstrap.sh"
)


@pytest.mark.xdist_group("chaos")
def test_the_embedded_service_keeps_its_promises(runtime: Path) -> None:
    with embedded(1) as campaign:
        assert campaign.run(FAULTS) == []


@pytest.mark.xdist_group("chaos")
def test_the_full_stack_keeps_its_promises(runtime: Path) -> None:
    with full_stack(2) as campaign:
        assert campaign.run(FAULTS) == []


@pytest.mark.xdist_group("servers")
def test_servers_keep_their_promises(runtime: Path) -> None:
    """Without upgrades, each of which starts the service anew: `make chaos` has them, and one test of the deep tier."""
    with on_servers(1) as campaign:
        campaign.faults = {name: fault for name, fault in campaign.faults.items() if name not in KINDS}
        assert campaign.run(FAULTS_ON_SERVERS) == []


@without_slurm
@pytest.mark.xdist_group("slurm")
def test_a_service_over_slurm_keeps_its_promises(runtime: Path) -> None:
    with over_slurm(2) as campaign:
        assert campaign.run(FAULTS_OVER_SLURM) == []


def test_a_violation_names_the_command_that_repeats_its_campaign() -> None:
    given = argparse.Namespace(seed=9, faults=10, only=["upgrade", "step of a server's clock"])
    words = shlex.split(command_of("servers", given))
    assert words[:2] == ["make", "chaos"]
    again = shlex.split(words[2].removeprefix("ARGS="))  # as the shell reads them that make starts
    assert again == ["servers", "--seed", "9", "--faults", "10", "--only", *given.only]


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


@pytest.mark.parametrize(
    ("events", "fault"),
    [
        ([("submitted", None), ("placed", 1), ("started", 1), ("finished", 1)], ""),
        ([("submitted", None), ("placed", 1), ("started", 1), ("placed", 2), ("requeued", 1), ("finished", 2)], ""),
        ([("submitted", None), ("finished", None), ("warning", None)], ""),
        ([("submitted", None), ("placed", 1)], "it has not finished"),
        ([("submitted", None), ("placed", 2)], "attempt 2 was placed after attempt 0"),
        (
            [("submitted", None), ("placed", 1), ("started", 1), ("placed", 2), ("started", 2)],
            "attempt 2 started while attempt 1 ran, or was not placed",
        ),
        (
            [("submitted", None), ("finished", None), ("finished", None)],
            "finished, attempt None, though it was submitted or has ended before",
        ),
    ],
)
def test_events_show_what_the_table_of_states_does_not_allow(events: list[tuple[str, int | None]], fault: str) -> None:
    assert fault_of_history(events) == fault
