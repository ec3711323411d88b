"""Text of others, made harmless for a terminal: names and logs cannot move its cursor, or retitle or reprogram it."""

import codecs
import re
import unicodedata
from collections.abc import Iterable, Iterator

_COLOUR = r"\x1b\[[0-9;:]*m"
_KEPT = re.compile(rf"({_COLOUR}|[\n\r\t])")
_UNFINISHED = re.compile(r"\x1b(?:\[[0-9;:]{0,32})?\Z")


def inert(text: str) -> str:
    """The text without control characters, and without the invisible ones that reorder what is around them."""
    return "".join(character for character in text if unicodedata.category(character) not in {"Cc", "Cf", "Cs"})


def inert_log(chunks: Iterable[bytes]) -> Iterator[str]:
    """A log for a terminal: lines, carriage returns, tabs and colours are left, other controls are not."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    held = ""
    for chunk in chunks:
        text = held + decoder.decode(chunk)
        unfinished = _UNFINISHED.search(text)
        end = unfinished.start() if unfinished else len(text)
        held = text[end:]
        yield _without_controls(text[:end])
    yield _without_controls(held + decoder.decode(b"", final=True))


def _without_controls(text: str) -> str:
    return "".join(part if _KEPT.fullmatch(part) else inert(part) for part in _KEPT.split(text))
