"""docs/operations.md has every state and health of a node, and when each follows."""

import re
from pathlib import Path

from django.conf import settings

from cluster_app.models import LOST_AFTER, SUSPECT_AFTER, Node

PAGE = (Path(settings.BASE_DIR) / "docs" / "operations.md").read_text()
SECTION = PAGE.split("## States of nodes")[1].split("\n## ")[0]


def test_the_page_has_every_state_and_health_in_their_order() -> None:
    assert re.findall(r"^\| `(\w+)` \|", SECTION, re.MULTILINE) == [*Node.State.values, *Node.Health.values]


def test_times_of_the_page_are_those_of_the_code() -> None:
    assert f"within the last {SUSPECT_AFTER.total_seconds():.0f} s" in SECTION
    assert f"more than {LOST_AFTER.total_seconds():.0f} s" in SECTION
