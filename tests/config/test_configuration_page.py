"""docs/configuration.md names every environment variable that Motley reads or sets, and no other."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from django.conf import settings

ROOT = Path(settings.BASE_DIR)
PACKAGES = (
    *("accounting_app", "allocation", "audit_app", "benchmarks", "client", "cluster_app", "config", "connections_app"),
    *("database", "engines", "estimation", "forecast", "front", "insight_app", "jobs_app", "motley_command"),
    *("operations", "scheduler_app", "simulation", "sweeps", "web"),
)
OTHER_FILES = ("Makefile", "bootstrap.sh", "docker-compose.yml", "Dockerfile", ".env.example", ".ci/run")
NAME = re.compile(r"MOTLEY_[A-Z][A-Z_]*[A-Z]")
READ = re.compile(r"environ(?:\.get\(|\[)\s*\"(MOTLEY_[A-Z_]+)\"")
ROW = re.compile(r"^\| `(MOTLEY_[A-Z_]+)` \|(.*)\|(.*)\|$", re.MULTILINE)


def test_the_page_names_every_variable_and_no_other():
    described = {name for name, _, _ in _rows()}
    used = {*_in_packages(), *_in_other_files(), *_read_by_tests()}
    assert used - described == set(), "these are missing in docs/configuration.md"
    assert described - used == set(), "nothing reads or sets these any more"


def test_every_variable_has_a_default_or_a_condition_and_a_meaning():
    assert [name for name, default, meaning in _rows() if not default.strip() or not meaning.strip()] == []


def _rows() -> list[tuple[str, str, str]]:
    return ROW.findall((ROOT / "docs" / "configuration.md").read_text())


def _in_packages() -> Iterator[str]:
    """Whole string literals: names of settings that are not variables are identifiers, and messages are longer."""
    paths = [ROOT / "manage.py", *(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))]
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and NAME.fullmatch(node.value):
                yield node.value


def _in_other_files() -> Iterator[str]:
    for name in OTHER_FILES:
        yield from NAME.findall((ROOT / name).read_text())


def _read_by_tests() -> Iterator[str]:
    for path in (ROOT / "tests").rglob("*.py"):
        yield from READ.findall(path.read_text())
