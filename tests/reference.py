"""Reference data: published traces and rates, and recorded results of other schedulers. None is in the repository."""

import os
from pathlib import Path

import pytest

NAMED = os.environ.get("MOTLEY_REFERENCE", "")
FOLDER = Path(NAMED) if NAMED else Path(__file__).parents[2] / "shared" / "reference"
MUST_BE_THERE = bool(NAMED)
"""If the folder is named, these tests must run: `.ci/run` names it where the data lies beside the checkout."""
HOW_TO_GET_IT = f"no reference data in {FOLDER}: set MOTLEY_REFERENCE, see 'Reference data' in CONTRIBUTING.md"


def reference(peer: str) -> Path:
    """The folder of one source's data; a missing one skips the test, and fails it if MOTLEY_REFERENCE is set."""
    if not (FOLDER / peer).is_dir():
        absent = pytest.fail if MUST_BE_THERE else pytest.skip
        absent(HOW_TO_GET_IT)
    return FOLDER / peer


def may_be_read(peer: str) -> bool:
    """Whether tests are made of the data when they are collected: if it is there, or must be."""
    return MUST_BE_THERE or (FOLDER / peer).is_dir()
