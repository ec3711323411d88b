"""A clock that advances by a step each time that it is read."""

from itertools import count

import pytest


def set_clock(monkeypatch: pytest.MonkeyPatch, *, step_s: float) -> None:
    """From now on deadlines are read off this clock."""
    looks = count()
    monkeypatch.setattr("allocation.time_budget.now_s", lambda: step_s * next(looks))
