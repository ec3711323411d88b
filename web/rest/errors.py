"""Faults of a request: each with its place as a JSON pointer, and the error that carries them."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, TypedDict

MOST_FAULTS = 100
"""Listed in one answer: thousands help nobody, and take minutes to word."""
MORE_FAULTS = "more_faults"
NOT_VALID = "The request is not valid; `errors` lists each fault with its place."


class Fault(TypedDict):
    """One thing wrong with a request: where (a JSON pointer), which kind, and what to do."""

    pointer: str
    code: str
    detail: str


class InvalidRequest(Exception):
    """The request cannot be accepted; every fault is listed."""

    code = "invalid"

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults = tuple(bounded(faults))
        super().__init__(NOT_VALID)


def bounded(faults: Iterable[Fault]) -> list[Fault]:
    """The first `MOST_FAULTS`, and how many more there are. A batch ends with such a note of its own."""
    every = iter(faults)
    first = list(islice(every, MOST_FAULTS + 1))
    if left := sum(1 for _ in every):
        text = f"Only the first {MOST_FAULTS} faults are listed; there are {left + 1:,} more."
        return [*first[:MOST_FAULTS], Fault(pointer="", code=MORE_FAULTS, detail=text)]
    return first


def faults_of(detail: Any, pointer: str = "") -> Iterator[Fault]:
    """Flatten REST framework's nested error detail into faults with JSON pointers."""
    match detail:
        case dict():
            for name, inner in detail.items():
                yield from faults_of(inner, pointer if name == "non_field_errors" else f"{pointer}/{escaped(name)}")
        case list():
            for position, inner in enumerate(detail):
                nested = isinstance(inner, dict | list)
                yield from faults_of(inner, f"{pointer}/{position}" if nested else pointer)
        case _:
            code = getattr(detail, "code", None) or "invalid"
            yield Fault(pointer=encodable(pointer), code=code, detail=encodable(str(detail)))


def escaped(name: Any) -> str:
    """Escape a name for use as one step of a JSON pointer (RFC 6901)."""
    return str(name).replace("~", "~0").replace("/", "~1")


def encodable(text: str) -> str:
    """Escape lone surrogates as \\udc80: JSON can write them, but UTF-8 cannot encode them."""
    return text.encode(errors="backslashreplace").decode()
