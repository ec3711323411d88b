"""Locks of a service that runs: on its data folder, and its schedulers' leases, which refuse a restore."""

import stat
from datetime import timedelta
from pathlib import Path

import pytest
from django.core.management import CommandError
from pytest_django import Settings

from operations.management.commands.serve import _exclusive_data_folder
from operations.restore import NotRestored, restore_backup
from scheduler_app.models import SchedulerLease
from scheduler_app.round.lease import Loop, holder_name
from tests.service_lab import Lab


def test_one_service_at_a_time_has_the_data_folder_and_no_job_can_lock_it(tmp_path: Path, settings: Settings) -> None:
    settings.VAR_DIR = tmp_path
    lock = tmp_path / "serving"
    lock.touch()
    lock.chmod(0o644)  # as an earlier version did
    with _exclusive_data_folder("http://localhost:8000"):
        assert (lock.read_text(), stat.S_IMODE(lock.stat().st_mode)) == ("http://localhost:8000", 0o600)
        with (
            pytest.raises(CommandError, match="already, at http://localhost:8000: stop that one"),
            _exclusive_data_folder("http://localhost:8001"),
        ):
            pass


def _ended(holder: str) -> str:
    """The name of a scheduler here whose process another has the number of now."""
    host, place, pid, _, chance = holder.split(":")
    return ":".join([host, place, pid, "1", chance])


def _elsewhere(holder: str) -> str:
    host, _, *rest = holder.split(":")
    return ":".join([host, "another.4026531836", *rest])


@pytest.mark.parametrize(
    ("holders", "refused"),
    [
        (["{here}"], True),
        (["{elsewhere}"], True),
        (["{ended}", "{here}"], True),
        (["{ended}", "{elsewhere}"], True),
        (["{ended}", "{ended}"], False),
        ([], False),
    ],
)
def test_a_backup_is_restored_once_all_schedulers_have_ended(
    lab: Lab, tmp_path: Path, holders: list[str], refused: bool
) -> None:
    here = holder_name()
    for loop, holder in zip(Loop, holders, strict=False):
        name = holder.format(here=here, elsewhere=_elsewhere(here), ended=_ended(here))
        SchedulerLease.objects.update_or_create(
            pk=loop, defaults={"holder": name, "expires_at": lab.now + timedelta(minutes=1)}
        )
    with pytest.raises((NotRestored, OSError)) as why:
        restore_backup(tmp_path / "no.motley", replace=True)
    assert ("A scheduler runs" in str(why.value)) is refused
