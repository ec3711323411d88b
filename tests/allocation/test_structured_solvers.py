"""Structured solvers decide as the plain programs on small random problems with ties, near ties and extreme rates."""

import pytest

from allocation.policies import PLAIN_PROGRAMS
from benchmarks.fuzz import ILL, differences, random_problem


@pytest.mark.parametrize("name", PLAIN_PROGRAMS)
def test_small_random_problems_are_decided_as_by_the_plain_program(name):
    faults = {seed: list(differences(name, random_problem(seed), all_levels=seed % 5 == 0)) for seed in range(25)}
    assert not {seed: found for seed, found in faults.items() if any(ILL not in fault for fault in found)}
