"""The policies: each a pure function of a problem; to add one is one file and one line here."""

from collections.abc import Callable
from typing import TypeAlias

from allocation.decision import Decision
from allocation.policies.fifo import fifo
from allocation.policies.max_min_fairness import max_min_fairness
from allocation.problem import Problem

Policy: TypeAlias = Callable[[Problem], Decision]

POLICIES: dict[str, Policy] = {
    "max_min_fairness": max_min_fairness,
    "fifo": fifo,
}
