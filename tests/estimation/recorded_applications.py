"""Training applications as they were recorded, and what the original computed of them."""

import json
import os
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from simulation.profiles import Profiles

SIA = Path(os.environ.get("MOTLEY_REFERENCE", Path(__file__).parents[3] / "shared" / "reference")) / "sia"
PROFILES = Profiles(SIA / "apps")

needs_reference = pytest.mark.skipif(not SIA.exists(), reason="the reference data is not there")


@cache
def golden() -> dict[str, Any]:
    """What the original computed."""
    content: dict[str, Any] = json.loads((SIA / "golden.json").read_text())
    return content


def recorded_values(name: str) -> list[dict[str, Any]]:
    """A list of them; empty where the reference data is not there."""
    return list(golden()[name]) if SIA.exists() else []
