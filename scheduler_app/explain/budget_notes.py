"""Budgets of teams at submission: a job says from the first moment that it waits for one, or runs with less weight."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from jobs_app.models import Reason
from jobs_app.submission.admission import Admitted
from scheduler_app.fairness.budgets import TeamBudget, budgets_of


def with_budget_notes(jobs: Sequence[Admitted], now: datetime) -> list[Admitted]:
    """The admitted jobs with what the budgets of their teams mean for them; no query where these have none."""
    budgets = budgets_of({job.team for job in jobs}, now)
    return [_noted(job, budgets[job.team.pk]) if job.team.pk in budgets else job for job in jobs]


def _noted(job: Admitted, budget: TeamBudget) -> Admitted:
    waits = (Reason.BUDGET, budget.why_jobs_wait) if budget.stops_starts else None
    return replace(job, waits=waits, note=budget.warning)
