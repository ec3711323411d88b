"""Entitlement of each team: its weighted max-min fair share of the cluster, no more than its jobs can use."""

from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

import numpy as np
from django.db.models import Q, Sum

from accounting_app.fairness.budgets import read_budgets, used_up
from allocation.fairness import entitled_shares
from jobs_app.models import Job, Team


class ActiveTeam(NamedTuple):
    """Weight of a team with queued or running jobs, and the most GPUs that these can use."""

    weight: float
    demand: int


def entitlement(active: Mapping[int, ActiveTeam], gpus: int) -> dict[int, float]:
    """Share of the cluster of each active team: weighted max-min fair, no more than its demand."""
    weight = np.array([team.weight for team in active.values()], dtype=float)
    demand = np.array([team.demand / max(gpus, 1) for team in active.values()], dtype=float)
    return dict(zip(active, entitled_shares(weight, demand).tolist(), strict=True))


def active_teams(now: datetime) -> dict[int, ActiveTeam]:
    """Teams with jobs that run or may start: not held, not waiting for a begin time or a budget."""
    asking = Job.objects.unfinished().filter(Q(begin_time=None) | Q(begin_time__lte=now), held=False)
    budgets = read_budgets(now)
    if closed := used_up(budgets):
        asking = asking.exclude(state=Job.State.QUEUED, team__in=closed)
    demand = dict(asking.order_by().values_list("team").annotate(Sum("gpus_max")))
    weights = Team.objects.filter(pk__in=demand).values_list("pk", "weight")
    return {
        team: ActiveTeam(weight * (budgets[team].weight_part if team in budgets else 1.0), demand[team])
        for team, weight in weights
    }
