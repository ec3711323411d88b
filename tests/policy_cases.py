"""Cases of tests that try policies one after the other: `make test` tries one of each kind."""

from collections.abc import Iterable

import pytest

from allocation.policies import POLICIES

ONE_OF_EACH_KIND = ("motley", "max_min_fairness", "fifo")
"""One of jobs, one of shares and one queue; the others go through the same code."""


def policy_cases(names: Iterable[str] = POLICIES) -> list[object]:
    """These policies as parameters of a test; those that stand for no others are thorough."""
    return [pytest.param(name, marks=() if name in ONE_OF_EACH_KIND else pytest.mark.thorough) for name in names]
