"""Set and delete quotas and budgets of teams; each change is in the audit list."""

from collections.abc import Mapping
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction

from audit_app.models import Action
from audit_app.services import note
from cluster_app.models import GpuType
from jobs_app.models import Budget, Team, TeamQuota


@transaction.atomic
def set_quota(team: Team, gpu_type: GpuType, limits: Mapping[str, int | None], *, actor: User) -> TeamQuota:
    """Give the team this quota on the GPU type, in place of the one that it has; the next round knows it."""
    quota, _ = TeamQuota.objects.update_or_create(team=team, gpu_type=gpu_type, defaults=limits)
    message = f"borrows {_most(quota.borrowing_limit)}, lends {_most(quota.lending_limit)}"
    note(Action.QUOTA_SET, actor=actor, target=str(quota), target_id=quota.pk, message=message)
    return quota


@transaction.atomic
def delete_quota(quota: TeamQuota, *, actor: User) -> None:
    """Delete it: the team uses the type as one without a quota, from the next round on."""
    note(Action.QUOTA_DELETE, actor=actor, target=str(quota), target_id=quota.pk)
    quota.delete()


@transaction.atomic
def set_budget(team: Team, columns: Mapping[str, Any], *, actor: User) -> Budget:
    """Give the team this budget, in place of the one that it has; the next round knows it."""
    budget, _ = Budget.objects.update_or_create(team=team, defaults=columns)
    note(Action.BUDGET_SET, actor=actor, target=str(budget), target_id=team.pk)
    return budget


@transaction.atomic
def delete_budget(budget: Budget, *, actor: User) -> None:
    """Delete it: nothing limits the team's work from the next round on."""
    note(Action.BUDGET_DELETE, actor=actor, target=str(budget), target_id=budget.pk)
    budget.delete()


def _most(limit: int | None) -> str:
    return "any number" if limit is None else f"{limit} at most"
