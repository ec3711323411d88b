"""Team ledger of a simulation: entitled and delivered shares of the cluster per round, and each team's backlog."""

from dataclasses import dataclass, field
from typing import Self

import numpy as np

from allocation.fairness import entitled_shares, later_backlog
from allocation.types import Floats, Ints
from simulation.workloads.jobs import Jobs

HOUR_S = 3600.0


@dataclass(eq=False)
class TeamLedger:
    """Ledger of T teams: what each was entitled to, and what it received.

    team (M,) of each job, T: none; weight, backlog_s (T,), the latter in seconds of the whole cluster; demand (M,) the
    most GPUs that a job can use; work_per_step (M,) in seconds of the average GPU; ends_s, seconds, entitled and
    delivered: of each round in which jobs could use more than the cluster, its end and length, and shares (T,) that add
    up to 1.
    """

    team: Ints
    weight: Floats
    demand: Floats
    work_per_step: Floats
    backlog_s: Floats
    ends_s: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    entitled: list[Floats] = field(default_factory=list)
    delivered: list[Floats] = field(default_factory=list)

    @classmethod
    def before(cls, jobs: Jobs) -> Self:
        """Ledger before the first arrival."""
        teams = int(jobs.team.max(initial=-1)) + 1
        weight = np.ones(teams)
        weight[jobs.team[jobs.team >= 0]] = jobs.team_weight[jobs.team >= 0]
        largest = np.where(jobs.kind_rate > 0, jobs.configurations.gpus, 0).max(axis=1, initial=0)
        return cls(
            team=np.where(jobs.team >= 0, jobs.team, teams),
            weight=weight,
            demand=largest[jobs.kind].astype(float),
            work_per_step=jobs.base_gpus / np.where(jobs.base_rate > 0, jobs.base_rate, 1),
            backlog_s=np.zeros(teams),
        )

    @property
    def teams(self) -> int:
        """Number of teams."""
        return len(self.weight)

    def work_of(self, rows: Ints, steps: Floats) -> Floats:
        """Work (T,) of so many steps of these rows, in seconds of the average GPU."""
        work = np.bincount(self.team[rows], steps * self.work_per_step[rows], minlength=self.teams + 1)
        return work[:-1].astype(float)

    def accrue(
        self,
        active: Ints,
        rows: Ints,
        steps: Floats,
        *,
        gpus: int,
        until_s: float,
        seconds: float,
        weight: Floats | None = None,
    ) -> None:
        """Extend the ledger by a round in which these rows did so many steps, while `active` were unfinished.

        weight (T,) is what budgets leave of the teams' weights; None: there are none.
        """
        if not self.teams or not rows.size or seconds <= 0:
            return
        work = self.work_of(rows, steps)
        demand = np.bincount(self.team[active], self.demand[active], minlength=self.teams + 1)[:-1]
        if work.sum() <= 0:
            return
        entitled, delivered = (
            entitled_shares(self.weight if weight is None else weight, demand / gpus),
            work / work.sum(),
        )
        self.backlog_s = later_backlog(self.backlog_s, entitled - delivered, seconds)
        if demand.sum() > gpus:
            self.ends_s.append(until_s)
            self.seconds.append(seconds)
            self.entitled.append(entitled)
            self.delivered.append(delivered)

    def backlog_of(self, rows: Ints) -> Floats:
        """Backlog (m,) of each row's team; 0 for a job without a team."""
        return np.append(self.backlog_s, 0.0)[self.team[rows]]

    def share_error(self, window_s: float = HOUR_S) -> float | None:
        """Mean over hours and over teams with demand of |delivered - entitled|, as a part of the cluster."""
        if not self.ends_s:
            return None
        hours, hour = np.unique(np.floor_divide(np.array(self.ends_s) - 1e-6, window_s), return_inverse=True)
        seconds = np.array(self.seconds)
        total_s = np.bincount(hour, seconds, minlength=len(hours))
        entitled, delivered = (self._by_hour(shares, hour) / total_s for shares in (self.entitled, self.delivered))
        there = entitled > 0
        error = np.where(there, np.abs(delivered - entitled), 0).sum(axis=0) / np.maximum(there.sum(axis=0), 1)
        return float(error @ total_s / total_s.sum())

    def _by_hour(self, shares: list[Floats], hour: Ints) -> Floats:
        """Seconds of the whole cluster (T, hours) by team."""
        of_rounds = np.array(shares) * np.array(self.seconds)[:, None]
        return np.stack([np.bincount(hour, column) for column in of_rounds.T])
