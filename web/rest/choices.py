"""Error messages for unknown values and names, which list the valid ones, and a choice field that uses them."""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any, NoReturn

from rest_framework import serializers

MOST_NAMED = 24
MOST_GUESSED = 20
"""Of unknown names in one request: a guess takes a comparison with each known name."""
MOST_CHARACTERS = 100
"""Of what was sent; more is not repeated."""
ELSEWHERE = {"page_size": "limit", "per_page": "limit", "page": "cursor", "offset": "cursor"}
"""Our names of parameters that other services name otherwise."""


def not_one_of(value: Any, choices: Iterable[Any]) -> str:
    """Message that refuses a value: it lists the choices, or the closest ones if there are more than `MOST_NAMED`."""
    names, said = [str(choice) for choice in choices], shortened(value)
    if len(names) <= MOST_NAMED:
        return f"{said} is not one of {', '.join(names)}."
    if len(said) < MOST_CHARACTERS and (near := get_close_matches(str(value), names, n=3)):
        return f"{said} is not one of {len(names)} choices; the nearest are {', '.join(near)}."
    return f"{said} is not one of {len(names)} choices, among them {', '.join(names[:MOST_NAMED])}."


def shortened(value: Any) -> str:
    """What was sent, as a message repeats it."""
    return repr(value)[:MOST_CHARACTERS]


def guess_of(name: str, known: Iterable[str]) -> str:
    """Question whether the nearest name was meant, with a space before it; empty if none is near."""
    names = list(known)
    if (meant := ELSEWHERE.get(name)) in names:
        return f" Did you mean {meant!r}?"
    near = get_close_matches(name, names, n=1) if len(name) <= MOST_CHARACTERS else []
    return f" Did you mean {near[0]!r}?" if near else ""


def guesses_of(names: Iterable[str], known: Iterable[str]) -> dict[str, str]:
    """`guess_of` for the first `MOST_GUESSED` of the names that are unknown; the others have no guess."""
    there = list(known)
    unknown = [name for name in names if name not in there]
    return {name: guess_of(name, there) if place < MOST_GUESSED else "" for place, name in enumerate(unknown)}


class Choice(serializers.ChoiceField):
    """Choice field whose error message lists the choices."""

    def fail(self, key: str, **given: Any) -> NoReturn:
        if key == "invalid_choice":
            raise serializers.ValidationError(not_one_of(given["input"], self.choices), key)
        super().fail(key, **given)
