"""Training applications as they were recorded, and what the original computed of them."""

import json
from functools import cache
from typing import Any

import pytest

from simulation.workloads.applications import ApplicationProfiles
from tests.reference import FOLDER, HOW_TO_GET_IT, may_be_read

SIA = FOLDER / "sia"
PROFILES = ApplicationProfiles(SIA / "apps")

needs_reference = pytest.mark.skipif(not may_be_read("sia"), reason=HOW_TO_GET_IT)


@cache
def golden() -> dict[str, Any]:
    """What the original computed."""
    content: dict[str, Any] = json.loads((SIA / "golden.json").read_text())
    return content


def recorded_values(name: str) -> list[dict[str, Any]]:
    """A list of them; empty where there is no reference data and MOTLEY_REFERENCE does not name any."""
    return list(golden()[name]) if may_be_read("sia") else []
