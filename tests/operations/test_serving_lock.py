"""Lock on the data folder of a service that runs."""

import stat
from pathlib import Path

import pytest
from django.core.management import CommandError
from pytest_django import Settings

from operations.management.commands.serve import _exclusive_data_folder


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
