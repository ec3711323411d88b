"""`llms.txt` leads assistants to every page of the documentation, in the words of docs/README.md."""

import re
from pathlib import Path

from django.conf import settings

ROOT = Path(settings.BASE_DIR)
ROW = re.compile(r"^\| (?P<of>[^|]*?) ?\| \[(?P<name>[^\]]+)\]\((?P<path>[^)]+)\) \| (?P<words>.*) \|$", re.MULTILINE)
HEAD = """\
# Motley

> A scheduling service for clusters of mixed GPU types: REST API, web pages, the command `motley` and a Python client.
> Pages below are Markdown. REST is described by docs/openapi.yaml, which a running service has at /api/schema/.

Start with README.md to run it, and with client/README.md for the command and the Python client.
"""


def expected() -> str:
    """The file as it should be; a page of the table that names nobody is for the same people as the one above."""
    text = HEAD
    for row in ROW.finditer((ROOT / "docs/README.md").read_text()):
        text += f"\n## For {row['of']}\n\n" if row["of"] else ""
        path = (ROOT / "docs" / row["path"]).resolve().relative_to(ROOT)
        text += f"- [{row['name']}]({path}): {row['words']}\n"
    return text


def test_it_has_every_page() -> None:
    assert (ROOT / "llms.txt").read_text() == expected()


def test_each_page_is_there() -> None:
    paths = re.findall(r"^- \[[^\]]+\]\(([^)]+)\)", (ROOT / "llms.txt").read_text(), re.MULTILINE)
    assert len(paths) > 40
    assert [path for path in paths if not (ROOT / path).exists()] == []
