"""Where the data of peers is."""

import os
from pathlib import Path

import pytest


def reference(peer: str) -> Path:
    """The folder of its data; without it a test is skipped, and fails in CI."""
    folder = Path(os.environ.get("MOTLEY_REFERENCE", Path(__file__).parents[3] / "shared" / "reference"))
    if not (folder / peer).is_dir():
        absent = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
        absent(f"no reference data in {folder}")
    return folder / peer
