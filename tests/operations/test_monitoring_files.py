"""Alerting rules and dashboard of deploy/: each expression is valid, and reads series that `/metrics` has."""

import json
import re
from collections.abc import Iterator

import promql_parser
import pytest
import yaml
from django.test import Client
from prometheus_client.parser import text_string_to_metric_families
from promql_parser import Expr, MatchOp, VectorSelector

from jobs_app.models import Job
from tests.deployment import ROOT
from tests.service_lab import Lab

RULES = yaml.safe_load((ROOT / "deploy/prometheus/motley.rules.yml").read_text())
BOARD = json.loads((ROOT / "deploy/grafana/motley.json").read_text())
RUNBOOK = (ROOT / "docs/alerts.md").read_text()
ALERTS = [rule for group in RULES["groups"] for rule in group["rules"]]
BY_PROMETHEUS = {"up"}
PARTS = ("", "_bucket", "_count", "_sum", "_total")


def expressions() -> Iterator[str]:
    yield from (alert["expr"] for alert in ALERTS)
    yield from (target["expr"] for panel in BOARD["panels"] for target in panel["targets"])


def selectors(expression: Expr) -> list[VectorSelector]:
    found: list[VectorSelector] = []

    def note(one: Expr) -> bool:
        if isinstance(one, VectorSelector):
            found.append(one)
        return True

    promql_parser.walk(expression, note)
    return found


@pytest.fixture
def series(lab: Lab) -> dict[str, list[dict[str, str]]]:
    """Labels by the name of the series, as Prometheus reads them; none where a family is empty."""
    lab.node("n1", gpus=2)
    lab.until_state(lab.submit(), Job.State.SUCCEEDED)
    families = list(text_string_to_metric_families(Client().get("/metrics").content.decode()))
    known: dict[str, list[dict[str, str]]] = {one.name + part: [] for one in families for part in PARTS}
    for family in families:
        for sample in family.samples:
            known.setdefault(sample.name, []).append(sample.labels)
    return known


def test_every_expression_reads_series_that_there_are(series: dict[str, list[dict[str, str]]]) -> None:
    for text in expressions():
        for one in selectors(promql_parser.parse(text)):
            assert one.name in series.keys() | BY_PROMETHEUS, text
            if labels := series.get(str(one.name)):
                assert any(_matches(one, each) for each in labels), text


def _matches(selector: VectorSelector, labels: dict[str, str]) -> bool:
    return all(
        labels.get(one.name) == one.value if one.op == MatchOp.Equal else one.name in labels
        for one in selector.matchers.matchers
    )


def test_every_alert_has_its_section_in_the_runbook() -> None:
    sections = re.findall(r"^## (\w+)$", RUNBOOK, re.MULTILINE)
    assert sections == [alert["alert"] for alert in ALERTS]
    for alert in ALERTS:
        assert alert["annotations"]["runbook"] == f"docs/alerts.md#{alert['alert'].lower()}"


def test_every_label_in_a_summary_is_one_that_its_expression_leaves(series: dict[str, list[dict[str, str]]]) -> None:
    for alert in ALERTS:
        used = set(re.findall(r"\$labels\.(\w+)", alert["annotations"]["summary"]))
        names = [str(one.name) for one in selectors(promql_parser.parse(alert["expr"]))]
        there = [set(labels) for name in names for labels in series.get(name, ())]
        assert all(used <= labels for labels in there), alert["alert"]


def test_panels_do_not_overlap() -> None:
    places = [tuple(panel["gridPos"][one] for one in "xywh") for panel in BOARD["panels"]]
    cells = [(x + i, y + j) for x, y, w, h in places for i in range(w) for j in range(h)]
    assert len(cells) == len(set(cells))
    assert len({panel["id"] for panel in BOARD["panels"]}) == len(BOARD["panels"])
