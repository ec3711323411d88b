"""Reports on attempts of a Slurm cluster whose shared folder has a clock of its own."""

import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from engines.attempt_files import StopFile, utc_now, write_json
from engines.protocol import Phase, StopReason
from engines.slurm.commands import SlurmCommands
from engines.slurm.parsing import SlurmJob
from engines.slurm.reports import Reports
from engines.slurm.site import Site
from engines.supervision.engine_root import EngineRoot
from tests.engines.engine_lab import until

ATTEMPT = 5
OVER, RUNS = (SlurmJob(7, "motley-x-5", state, "", "n1") for state in ("COMPLETED", "RUNNING"))


class Commands(SlurmCommands):
    """Commands of no cluster, which note what is cancelled."""

    def __init__(self) -> None:
        super().__init__()
        self.cancelled: set[int] = set()

    def cancel(self, numbers: Iterable[int], *options: str) -> None:
        self.cancelled |= {*numbers}


@pytest.fixture
def commands() -> Commands:
    return Commands()


@pytest.fixture
def root(tmp_path: Path) -> EngineRoot:
    """With an attempt that has started."""
    root = EngineRoot(tmp_path)
    root.make()
    folder = root.attempt(ATTEMPT)
    folder.path.mkdir()
    write_json(folder.started, {"at": utc_now().isoformat()})
    return root


def reports(root: EngineRoot, commands: Commands, *, late_disk_s: float = 60.0) -> Reports:
    site = Site(commands, root=root.path, partition="", reservation="")
    return Reports(root, site, late_disk_s=late_disk_s)


def our_clock_differs(by_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of the disk is the kernel's."""
    clock = time.time
    monkeypatch.setattr(time, "time", lambda: clock() + by_s)


def test_a_late_report_is_waited_for_whatever_the_clock_of_the_file_server(
    root: EngineRoot, commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    our_clock_differs(61, monkeypatch)
    slurm = reports(root, commands)
    assert [one.phase for _ in range(2) if (one := slurm.of(ATTEMPT, {ATTEMPT: [OVER]}))] == [Phase.RUNNING] * 2
    assert not slurm.is_over(ATTEMPT)


def test_a_dead_attempt_is_given_up_though_the_clock_of_the_file_server_is_ahead(
    root: EngineRoot, commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    our_clock_differs(-3600, monkeypatch)
    slurm = reports(root, commands, late_disk_s=0.05)

    def phase() -> Phase:
        report = slurm.of(ATTEMPT, {ATTEMPT: [OVER]})
        assert report is not None
        return report.phase

    until(lambda: phase() is Phase.LOST)


def test_a_stop_has_its_grace_period_whatever_the_clock_of_the_file_server(
    root: EngineRoot, commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    our_clock_differs(61, monkeypatch)
    write_json(root.attempt(ATTEMPT).stop, StopFile(reason=StopReason.CANCEL, grace_s=30))
    slurm = reports(root, commands)
    assert slurm.of(ATTEMPT, {ATTEMPT: [RUNS]}) is not None
    assert commands.cancelled == set()
    write_json(root.attempt(ATTEMPT).stop, StopFile(reason=StopReason.CANCEL, grace_s=-3600))
    slurm.of(ATTEMPT, {ATTEMPT: [RUNS]})
    assert commands.cancelled == {7}
