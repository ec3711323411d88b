"""A policy with parameters of every kind, in the place of one that is there."""

from typing import Annotated, Literal

import pytest

from allocation.decision import Decision
from allocation.policies import POLICIES
from allocation.policies.fifo import fifo
from allocation.policies.parameters import Choice, Range, Switch
from allocation.problem import Problem

NAME = "fifo"
DEFAULTS = {"power": -0.5, "queues": 3, "strict": False, "first": "old"}


def tuned(
    problem: Problem,
    *,
    power: Annotated[float, Range(-4, 4, "how steep it is")] = -0.5,
    queues: Annotated[int, Range(1, 9, "how many there are")] = 3,
    strict: Annotated[bool, Switch("no mercy")] = False,
    first: Annotated[Literal["old", "new"], Choice("who goes first")] = "old",
) -> Decision:
    """Queue in the order of submission.

    Choose it when nothing else will do.
    """
    return fifo(problem)


def install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under the name of a policy that every interface knows."""
    monkeypatch.setitem(POLICIES, NAME, tuned)
