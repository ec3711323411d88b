"""docs/which-policy.md names every policy, with what its decisions need."""

import re
from pathlib import Path

import pytest

from allocation.policies import REGISTRY

PAGE = Path(__file__).parents[2] / "docs" / "which-policy.md"
TABLE = PAGE.read_text().split("| if | choose | it needs |")[1].split("\n\n")[0]
ROWS = dict(re.findall(r"^\| .+? \| `(\w+)`[^|]*\| ([^|]+) \| [^|]*\|$", TABLE, re.MULTILINE))


def test_every_policy_has_a_row() -> None:
    assert set(ROWS) == set(REGISTRY)


@pytest.mark.parametrize("name", REGISTRY)
def test_a_row_says_what_the_policy_needs(name: str) -> None:
    assert ROWS[name].partition(";")[0] == (", ".join(REGISTRY[name].needs) or "nothing")
