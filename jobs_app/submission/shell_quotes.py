"""Places of a shell text that stand within quotes, where a value that is quoted for the shell would be quoted twice."""

import re
from collections.abc import Iterator

TOKEN = re.compile(r"""\\.|'[^']*'?|"(?:\\.|[^"\\])*"?|[^\\'"]+|.""", re.DOTALL)


def first_within_quotes(text: str, place: re.Pattern[str]) -> re.Match[str] | None:
    """The first match of `place` that overlaps a part in single or double quotes; None: there is none."""
    quoted = list(_quoted(text))
    for found in place.finditer(text):
        if any(start < found.end() and found.start() < end for start, end in quoted):
            return found
    return None


def _quoted(text: str) -> Iterator[tuple[int, int]]:
    return (one.span() for one in TOKEN.finditer(text) if one[0][0] in "'\"")
