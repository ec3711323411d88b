"""Training applications as they were recorded, and what the original computed of them."""

import json
from functools import cache
from typing import Any

import pytest
from reference import FOLDER, may_be_read

from simulation.profiles import Profiles

SIA = FOLDER / "sia"
PROFILES = Profiles(SIA / "apps")

needs_reference = pytest.mark.skipif(not may_be_read("sia"), reason=f"no reference data in {FOLDER}")


@cache
def golden() -> dict[str, Any]:
    """What the original computed."""
    content: dict[str, Any] = json.loads((SIA / "golden.json").read_text())
    return content


def recorded_values(name: str) -> list[dict[str, Any]]:
    """A list of them; empty where the reference data is not there, which in CI is a fault."""
    return list(golden()[name]) if may_be_read("sia") else []
