"""What is known at the moment of a forecast, how rounds are decided, and one draw of what is not known."""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from allocation.inventory import Inventory
from allocation.policies.parameters import Policy
from allocation.problem import LEAST_WEIGHT, Problem
from allocation.quotas import Quotas
from allocation.rounds.windows import Stays, Windows
from estimation.types import Bools, Floats, Ints
from forecast.gates import Waits
from forecast.outages import Outage


@dataclass(frozen=True, eq=False, kw_only=True)
class Present:
    """A round's input with M rows: first the m jobs that are there, then samples of jobs that may arrive.

    Parameters
    ----------
    problem, inventory, quotas
        As a round has them; samples of arrivals hold nothing, and have received nothing.
    jobs
        m, the number of jobs that are there.
    team_weight
        Weight (M,) of each row's team, which its unfinished jobs share.
    limit_s
        Seconds (M,) for which each row may still run; inf: without limit.
    preemptible
        Rows (M,) that may be stopped or moved once they run.
    waits
        What the m jobs that are there wait for beside GPUs; None: nothing.
    windows, stays
        Windows of nodes, and how long the rows hold GPUs; None: there are no windows.
    """

    problem: Problem
    inventory: Inventory
    quotas: Quotas
    jobs: int
    team_weight: Floats
    limit_s: Floats
    preemptible: Bools
    waits: Waits | None = None
    windows: Windows | None = None
    stays: Stays | None = None

    def rows(self, kept: Ints) -> Self:
        """The same moment for some of the rows: first all jobs that are there, in their order."""
        position = np.full(len(self.team_weight) + 1, -1)
        position[kept] = np.arange(len(kept))
        return replace(
            self,
            problem=self.problem.subset(kept),
            inventory=self.inventory.of_rows(kept, position[self.inventory.holder]),
            quotas=self.quotas.of_rows(kept),
            jobs=int((kept < self.jobs).sum()),
            team_weight=self.team_weight[kept],
            limit_s=self.limit_s[kept],
            preemptible=self.preemptible[kept],
            stays=self.stays and self.stays.of_rows(kept),
        )


def weights_among(team_weight: Floats, job_weight: Floats, team: Ints) -> Floats:
    """Weights (m,) of unfinished jobs: that of the team, split by theirs; the mean is 1."""
    of_team = np.unique(team, return_inverse=True)[1]
    weight = team_weight * job_weight / np.bincount(of_team, job_weight)[of_team]
    weights: Floats = np.maximum(weight / weight.mean(), LEAST_WEIGHT)
    return weights


@dataclass(frozen=True)
class Rounds:
    """How rounds are decided: the policy, their length, and the time for which a job keeps its GPUs at least."""

    policy: Policy
    round_s: float
    min_run_s: float = 0.0
    strict: bool = False
    """Whether jobs are served in the order of submission, and the first that does not fit stops the queue."""
    settled: bool = False
    """Whether running jobs stay where they are until a job arrives or ends, a node changes, or a lock expires."""


@dataclass(frozen=True, eq=False)
class Draw:
    """One draw of what is not known, for L rows.

    rows (L,) are those of the present, first the jobs that are there, then arrivals, of which one sample may be
    several; arrival_s (L,), of the first their begin time, or 0; left (L,) steps until each is done; speed (L,), by
    which true rates differ from those that the policy is told; outages of nodes, by their numbers in the inventory.
    """

    rows: Ints
    arrival_s: Floats
    left: Floats
    speed: Floats
    outages: tuple[Outage, ...] = ()
