"""Budgets of teams in a simulation: what is used of each in the calendar period, and what follows for its jobs."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import inf
from typing import NamedTuple

import numpy as np

from allocation.budgets import midnight, period_around, stops_starts, weight_part
from allocation.types import Bools, Floats

HOUR_S = 3600.0


class TeamBudget(NamedTuple):
    """Budget of a team (its index) in reference GPU-hours, and those that it has used when the simulation begins."""

    team: int
    gpu_hours: float
    period: str
    kind: str
    used_gpu_hours: float = 0.0


@dataclass(eq=False)
class TeamBudgets:
    """Budgets of some of T teams, by the calendar of UTC; the simulation begins at `began_at`.

    used_gpu_s (B,) since the period of each began; since_s and until_s (B,) are the begin and the end of that.
    """

    budgets: Sequence[TeamBudget]
    began_at: datetime
    teams: int
    used_gpu_s: Floats = field(init=False)
    since_s: Floats = field(init=False)
    until_s: Floats = field(init=False)
    closed: Bools = field(init=False)
    """Teams (T + 1,) whose waiting jobs wait for the next period; the last: jobs without a team."""

    def __post_init__(self) -> None:
        self.used_gpu_s = np.array([one.used_gpu_hours for one in self.budgets]) * HOUR_S
        self.since_s, self.until_s = np.zeros(len(self.budgets)), np.zeros(len(self.budgets))
        for b in range(len(self.budgets)):
            self._open(b, 0.0)
        self.closed = self._closed()

    def use(self, work_gpu_s: Floats) -> None:
        """Add the work of a round (T,), in seconds of the average GPU."""
        self.used_gpu_s += work_gpu_s[[one.team for one in self.budgets]]

    def turn_to(self, now_s: float) -> bool:
        """Begin the periods that are due; whether jobs of other teams than before may start."""
        for b in np.flatnonzero(self.until_s <= now_s).tolist():
            self._open(b, now_s)
            self.used_gpu_s[b] = 0.0
        before, self.closed = self.closed, self._closed()
        return bool((before != self.closed).any())

    def weight_parts(self, now_s: float) -> Floats:
        """Part of its weight that each team (T + 1,) has now."""
        parts, elapsed = np.ones(self.teams + 1), (now_s - self.since_s) / (self.until_s - self.since_s)
        for one, used, gone in zip(self.budgets, self._used(), elapsed.tolist(), strict=True):
            parts[one.team] = weight_part(one.kind, used, gone)
        return parts

    def next_reset_s(self) -> float:
        """When the first of the teams whose jobs wait may start some; inf: none waits."""
        ends = [until_s for one, until_s in zip(self.budgets, self.until_s, strict=True) if self.closed[one.team]]
        return float(min(ends, default=inf))

    def _open(self, b: int, now_s: float) -> None:
        days = period_around((self.began_at + timedelta(seconds=now_s)).date(), self.budgets[b].period)
        self.since_s[b], self.until_s[b] = ((midnight(day) - self.began_at).total_seconds() for day in days)

    def _used(self) -> list[float]:
        """Part of each budget that is used."""
        return [used_s / HOUR_S / one.gpu_hours for one, used_s in zip(self.budgets, self.used_gpu_s, strict=True)]

    def _closed(self) -> Bools:
        closed = np.zeros(self.teams + 1, dtype=np.bool_)
        for one, used in zip(self.budgets, self._used(), strict=True):
            closed[one.team] = stops_starts(one.kind, used)
        return closed
