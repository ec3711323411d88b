"""The policies: each a pure function of a problem; to add one is one file and one line here."""

from allocation.parameters import Policy
from allocation.policies.fifo import fifo
from allocation.policies.max_min_fairness import max_min_fairness

POLICIES: dict[str, Policy] = {
    "max_min_fairness": max_min_fairness,
    "fifo": fifo,
}
