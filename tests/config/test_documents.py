"""The documents lead where they say, and speak of this repository alone."""

import re
from collections.abc import Iterator
from pathlib import Path

from django.conf import settings

ROOT = Path(settings.BASE_DIR)
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "client" / "README.md"])
LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)#\s]+)")
MODULE = re.compile(
    r"`((?:[a-z]+_app|allocation|client|config|engines|estimation|forecast|motley_command|operations|simulation|sweeps"
    r"|tests|web)/[\w/]+\.py)`"
)


def test_the_readme_is_short():
    lines = (ROOT / "README.md").read_text().splitlines()
    assert len(lines) <= 120
    assert [line for line in lines if len(line) > 160] == []


def test_titles_of_decisions_begin_with_their_number():
    titles = {path.name: path.read_text().split("\n", 1)[0] for path in (ROOT / "docs" / "decisions").glob("0*.md")}
    assert [name for name, title in titles.items() if not title.startswith(f"# {int(name[:4])}. ")] == []


def test_decisions_are_short():
    lengths = {path.name: len(path.read_text().splitlines()) for path in (ROOT / "docs" / "decisions").glob("0*.md")}
    assert {name: lines for name, lines in lengths.items() if lines > 40} == {}


def test_links_lead_to_files():
    links = [(path, link) for path in DOCUMENTS for link in LINK.findall(path.read_text())]
    assert [(str(path.relative_to(ROOT)), link) for path, link in links if not (path.parent / link).exists()] == []


def test_modules_that_are_named_are_there():
    named = [(path, name) for path in DOCUMENTS for name in MODULE.findall(path.read_text()) if "NAME" not in name]
    assert [(str(path.relative_to(ROOT)), name) for path, name in named if not (ROOT / name).exists()] == []


def test_every_decision_has_a_line_in_the_index():
    decisions = sorted(path.name for path in (ROOT / "docs" / "decisions").glob("0*.md"))
    index = (ROOT / "docs" / "decisions" / "README.md").read_text()
    assert LINK.findall(index) == decisions


def test_every_document_is_in_the_index():
    index = (ROOT / "docs" / "README.md").read_text()
    pages = {path.name for path in (ROOT / "docs").iterdir() if path.suffix in {".md", ".yaml"}} - {"README.md"}
    assert pages - set(LINK.findall(index)) == set()


def test_nothing_refers_to_what_is_outside_the_repository():
    outside = re.compile(r"\b(issue \d+|findings/|the design (says|names|lists)|/work/)", re.IGNORECASE)
    assert {place: text for place, text in _lines() if outside.search(text)} == {}


def _lines() -> Iterator[tuple[str, str]]:
    for path in DOCUMENTS:
        for number, line in enumerate(path.read_text().splitlines(), start=1):
            yield f"{path.relative_to(ROOT)}:{number}", line
