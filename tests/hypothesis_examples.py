"""How many examples hypothesis makes up for a test: always the same ones, and a tenth of them in `make test-fast`."""

from hypothesis import settings

USUAL = 100


def examples(most: int) -> settings:
    """Settings for so many examples; the profile `fast` of tests/conftest.py has a tenth."""
    part = settings.default.max_examples / USUAL if settings.default is not None else 1
    return settings(max_examples=round(most * part), deadline=None, derandomize=True)
