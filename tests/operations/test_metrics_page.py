"""docs/operations.md has every family of metrics with its labels, as `/metrics` has them."""

import re
from pathlib import Path

from django.conf import settings

from operations.metrics import DCGM_LABELS, MetricsCollector
from tests.service_lab import Lab

ROW = re.compile(r"^\| (`(?:motley_|DCGM_)[^|]*) \| ([^|]*?) ?\| .+ \|$", re.MULTILINE)


def described() -> dict[str, set[str]]:
    """Labels of each family in the table; of several families of a row, those of any."""
    text = (Path(settings.BASE_DIR) / "docs" / "operations.md").read_text()
    rows = [(re.findall(r"`(\w+)`", names), set(re.findall(r"`(\w+)`", labels))) for names, labels in ROW.findall(text)]
    return {name.removesuffix("_total"): labels for names, labels in rows for name in names}


def test_the_page_has_every_family_and_no_other(lab: Lab) -> None:
    lab.round()
    given = {family.name for family in MetricsCollector().collect()}
    assert given <= described().keys()
    assert described().keys() - given <= {"motley_solver_gap_ratio"}, "of a round with a gap alone"


def test_labels_of_the_page_are_those_of_the_families(lab: Lab) -> None:
    lab.node("n1", gpus=2)
    lab.round()
    for family in MetricsCollector().collect():
        for sample in family.samples:
            assert sample.labels.keys() - {"le"} <= described()[family.name], family.name
    assert described()["DCGM_FI_DEV_GPU_UTIL"] == {*DCGM_LABELS}
