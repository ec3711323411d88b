"""How many examples hypothesis makes up for a test, the same each time: a tenth in `make test-fast` and `make test`."""

from hypothesis import settings

USUAL = 100


def examples(most: int) -> settings:
    """Settings for so many examples; the profile `fast` of tests/conftest.py has a tenth."""
    return settings(max_examples=max(1, round(most * part())), deadline=None, derandomize=True)


def part() -> float:
    """The part of all examples that is tried in this run."""
    return settings.default.max_examples / USUAL if settings.default is not None else 1
