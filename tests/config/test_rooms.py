"""No room has more lines of code than the documents say."""

import ast
import io
import re
import tokenize
from pathlib import Path

from django.conf import settings

from tests.config.test_configuration_page import PACKAGES

ROOT = Path(settings.BASE_DIR)
IN_ROOMS = ("web/pages", "web/api", "web/rest")
"""`web/` holds what is spoken over HTTP: each of these is a room of its own."""
MOST = 9_000
NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def test_no_room_has_more_lines_of_code_than_the_documents_say() -> None:
    said = {re.sub(",", "", figure) for name in ("CONTRIBUTING.md", "docs/architecture.md") for figure in _said(name)}
    assert said == {str(MOST)}
    rooms = [*(name for name in PACKAGES if name != "web"), *IN_ROOMS]
    lines = {room: sum(map(lines_of_code, _modules(ROOT / room))) for room in rooms}
    assert {room: count for room, count in lines.items() if count > MOST} == {}
    assert min(lines.values()) > 100, lines


def _modules(room: Path) -> list[Path]:
    """All but migrations, which nobody reads for what the room does."""
    return [path for path in room.rglob("*.py") if "migrations" not in path.parts]


def lines_of_code(path: Path) -> int:
    """Lines with code: neither blank lines nor comments nor docstrings."""
    text = path.read_text()
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    lines = {line for one in tokens if one.type not in NO_CODE for line in range(one.start[0], one.end[0] + 1)}
    return len(lines - _docstrings(text))


def _docstrings(text: str) -> set[int]:
    """Lines of texts that stand alone, docstrings of attributes included."""
    alone = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Expr))
    texts = [one for one in alone if isinstance(one.value, ast.Constant) and isinstance(one.value.value, str)]
    return {line for one in texts for line in range(one.lineno, (one.end_lineno or one.lineno) + 1)}


def _said(name: str) -> list[str]:
    return re.findall(r"([\d,]+)\s+lines of code", (ROOT / name).read_text())
