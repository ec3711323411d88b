"""Where the data of peers is, of which the project keeps none."""

import os
from pathlib import Path

import pytest

FOLDER = Path(os.environ.get("MOTLEY_REFERENCE", Path(__file__).parents[2] / "shared" / "reference"))
MUST_BE_THERE = os.environ.get("CI") == "true"


def reference(peer: str) -> Path:
    """The folder of its data; without it a test is skipped, and fails in CI."""
    if not (FOLDER / peer).is_dir():
        absent = pytest.fail if MUST_BE_THERE else pytest.skip
        absent(f"no reference data in {FOLDER}")
    return FOLDER / peer


def may_be_read(peer: str) -> bool:
    """Whether tests are made of the data before any of them runs: if it is there, and in CI at any rate."""
    return MUST_BE_THERE or (FOLDER / peer).is_dir()
