"""Entitlement of each team: its weighted max-min fair share of the cluster, no more than its jobs can use."""

from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

import numpy as np

from accounting_app.fairness.budgets import read_budgets, used_up
from accounting_app.fairness.demand import team_demands
from allocation.fairness import entitled_shares
from jobs_app.models import Team


class ActiveTeam(NamedTuple):
    """Weight of a team with demand, and that demand (`TeamDemand`)."""

    weight: float
    demand: int
    """The most GPUs that its jobs can use."""
    waiting: int = 0
    """GPUs of its jobs that could start now, by their smallest gangs."""


def entitlement(active: Mapping[int, ActiveTeam], gpus: int) -> dict[int, float]:
    """Share of the cluster of each active team: weighted max-min fair, no more than its demand."""
    weight = np.array([team.weight for team in active.values()], dtype=float)
    demand = np.array([team.demand / max(gpus, 1) for team in active.values()], dtype=float)
    return dict(zip(active, entitled_shares(weight, demand).tolist(), strict=True))


def active_teams(now: datetime) -> dict[int, ActiveTeam]:
    """Teams with demand: with jobs that run or could start now."""
    budgets = read_budgets(now)
    demands = team_demands(now, closed=used_up(budgets))
    weights = Team.objects.filter(pk__in=demands).values_list("pk", "weight")
    return {
        team: ActiveTeam(weight * (budgets[team].weight_part if team in budgets else 1.0), one.most, one.waiting)
        for team, weight in weights
        if (one := demands[team]).most
    }
